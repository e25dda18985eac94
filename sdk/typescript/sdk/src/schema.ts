/**
 * Standard Schema (https://standardschema.dev): what zod, valibot, arktype and others have in common.
 *
 * The interface is written out here, as its specification suggests, so that no schema library is needed.
 */

/** A schema of any library that keeps to the standard. */
export interface StandardSchema<Input = unknown, Output = Input> {
  /** What the standard asks for. */
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** What a schema says of a value. */
export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

/** One fault of a value. */
export interface SchemaIssue {
  /** What is wrong, for people. */
  readonly message: string;
  /** Where: keys from the outermost in. */
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** The type that a schema takes. */
export type SchemaInput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["input"];
/** The type that a schema gives. */
export type SchemaOutput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["output"];

/** A value that does not fit its schema; the message has every fault with its place. */
export class SchemaError extends Error {
  override readonly name = "SchemaError";

  constructor(
    /** The faults, at least one. */
    readonly issues: readonly SchemaIssue[],
  ) {
    super(issues.map(describe).join("; "));
  }
}

/**
 * Checks a value and gives what the schema makes of it.
 *
 * @throws SchemaError with every fault.
 */
export async function validate(schema: StandardSchema, value: unknown): Promise<unknown> {
  const result = await schema["~standard"].validate(value);
  if (result.issues !== undefined) {
    throw new SchemaError(result.issues);
  }
  return result.value;
}

function describe(issue: SchemaIssue): string {
  const path = (issue.path ?? []).map((part) => String(typeof part === "object" ? part.key : part)).join(".");
  return path === "" ? issue.message : `${path}: ${issue.message}`;
}
