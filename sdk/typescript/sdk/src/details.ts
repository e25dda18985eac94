/**
 * The details of a refused call: the few messages of `google.rpc` that the server sends, read from their bytes.
 *
 * They are no part of the generated stubs, since they are not Orbit's own; they have not changed in ten years.
 */

import { BinaryReader } from "@bufbuild/protobuf/wire";

/** A field of a request that the server does not take. */
export interface FieldViolation {
  /** Path of the field, as in `steps[2].retry.jitter`. */
  readonly field: string;
  /** What is wrong with it, for people. */
  readonly description: string;
}

/** What the details of an error say. */
export interface ErrorDetails {
  /** Name of an `ErrorReason` without its prefix; empty if the error has none. */
  reason: string;
  /** Facts about the error, by name. */
  metadata: Record<string, string>;
  /** All fields that the server does not take. */
  violations: FieldViolation[];
  /** Shortest pause before the same call can work, in milliseconds. */
  retryAfterMs: number | undefined;
}

/** Reads the details that a call's status carries; those of other kinds are passed over. */
export function readDetails(details: readonly { readonly type: string; readonly value: Uint8Array }[]): ErrorDetails {
  const found: ErrorDetails = { reason: "", metadata: {}, violations: [], retryAfterMs: undefined };
  for (const { type, value } of details) {
    switch (type) {
      case "google.rpc.ErrorInfo":
        readFields(value, (field, reader) => {
          if (field === 1) {
            found.reason = reader.string();
          } else if (field === 3) {
            const [key, text] = readStrings(reader.bytes());
            found.metadata[key] = text;
          } else {
            return false;
          }
          return true;
        });
        break;
      case "google.rpc.BadRequest":
        readFields(value, (field, reader) => {
          if (field !== 1) {
            return false;
          }
          const [path, description] = readStrings(reader.bytes());
          found.violations.push({ field: path, description });
          return true;
        });
        break;
      case "google.rpc.RetryInfo":
        readFields(value, (field, reader) => {
          if (field !== 1) {
            return false;
          }
          found.retryAfterMs = readDuration(reader.bytes());
          return true;
        });
        break;
      default:
    }
  }
  return found;
}

/** Goes through a message's fields; `read` returns false for one that it has not taken. */
function readFields(bytes: Uint8Array, read: (field: number, reader: BinaryReader) => boolean): void {
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (!read(field, reader)) {
      reader.skip(wireType, field);
    }
  }
}

/** Reads a message whose fields 1 and 2 are texts: an entry of a map, a violation. */
function readStrings(bytes: Uint8Array): [string, string] {
  const texts: [string, string] = ["", ""];
  readFields(bytes, (field, reader) => {
    if (field !== 1 && field !== 2) {
      return false;
    }
    texts[field - 1] = reader.string();
    return true;
  });
  return texts;
}

function readDuration(bytes: Uint8Array): number {
  let milliseconds = 0;
  readFields(bytes, (field, reader) => {
    if (field === 1) {
      milliseconds += Number(reader.int64()) * 1000;
    } else if (field === 2) {
      milliseconds += reader.int32() / 1e6;
    } else {
      return false;
    }
    return true;
  });
  return milliseconds;
}
