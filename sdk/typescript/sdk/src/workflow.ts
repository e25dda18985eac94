/** Workflows by name, with the types of their input and output. */

import type { SchemaInput, SchemaOutput, StandardSchema } from "./schema.js";

/** A workflow that executions can be started of. */
export interface Workflow<Input = unknown, Output = unknown> {
  /** Name of the workflow. */
  readonly name: string;
  /** Version to start; `undefined` is the highest. */
  readonly version: string | undefined;
  /** Judges the input before it is sent; `undefined` for none. */
  readonly input: StandardSchema | undefined;
  /** Judges the output before it is given to the caller; `undefined` for none. */
  readonly output: StandardSchema | undefined;
  /** Carries the types; never set. */
  readonly types?: { readonly input: Input; readonly output: Output };
}

/** What a workflow has beside its name. */
export interface WorkflowOptions<Input extends StandardSchema, Output extends StandardSchema> {
  /** Version to start. Default: the highest. */
  readonly version?: string;
  /** Judges the input before it is sent. */
  readonly input?: Input;
  /** Judges the output before it is given to the caller. */
  readonly output?: Output;
}

/** Names a workflow that schemas type and judge. */
export function workflow<Input extends StandardSchema = StandardSchema, Output extends StandardSchema = StandardSchema>(
  name: string,
  options: WorkflowOptions<Input, Output>,
): Workflow<SchemaInput<Input>, SchemaOutput<Output>>;
/** Names a workflow whose types are plain ones: `workflow<Order, Receipt>("order")`. */
export function workflow<Input = unknown, Output = unknown>(name: string): Workflow<Input, Output>;
export function workflow(name: string, options: WorkflowOptions<StandardSchema, StandardSchema> = {}): Workflow {
  return { name, version: options.version, input: options.input, output: options.output };
}
