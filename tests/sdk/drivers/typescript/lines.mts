/** The protocol's lines: one JSON object each, on stdout. */

import {
  ExecutionFailedError,
  OrbitError,
  printJson,
} from "@orbit/sdk";

/** Arguments of a command, or fields of a line. */
export type Fields = Readonly<Record<string, unknown>>;

/** Does a command. */
export type Operation = (args: Fields, id: number) => Promise<Fields> | Fields;

/** Writes one line. */
export function tell(line: Fields): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** What the protocol says of an error; the SDK's classes end in `Error`, as is the custom here. */
export function errorFields(error: unknown): Fields {
  if (!(error instanceof OrbitError)) {
    const other = error instanceof Error ? error : new Error(String(error));
    return { class: other.name, code: "", reason: "", message: other.message, violations: [], metadata: {} };
  }
  const { code, reason, message, violations, metadata } = error;
  const name = error.name === "OrbitError" ? error.name : error.name.replace(/Error$/, "");
  const fields = { class: name, code, reason, message, violations, metadata };
  if (!(error instanceof ExecutionFailedError)) {
    return fields;
  }
  const { details, ...failure } = error.failure;
  return { ...fields, failure: { ...failure, details_json: details === undefined ? null : printJson(details) } };
}

/** An argument that may be absent or null. */
export function optional<T>(args: Fields, name: string, read: (value: unknown) => T): T | undefined {
  const value = args[name];
  return value === undefined || value === null ? undefined : read(value);
}

export const text = (value: unknown) => String(value);
export const number = (value: unknown) => Number(value);
/** Seconds of the protocol as the SDK's milliseconds. */
export const milliseconds = (value: unknown) => Number(value) * 1000;
