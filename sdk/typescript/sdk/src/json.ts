/**
 * JSON text and values, every digit of an integer kept.
 *
 * An integer beyond 2^53 - 1, which a number would round, is a `bigint`, in both directions; every other number is a
 * `number`. Texts without long runs of digits, which is nearly all of them, go through the engine's own parser.
 */

import { randomUUID } from "node:crypto";

/** A value that JSON can say; large integers are `bigint`. */
export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json };

// Stands before the digits of a large integer while it is on its way through the engine's parser or printer as a
// string. Nobody can guess it, so no string of a payload begins with it.
const MARK = `${randomUUID()}:`;

// A number of sixteen digits may be beyond 2^53; one of fifteen never is.
const MAYBE_LARGE = /\d{16}/;
// The strings of a text, and its long integers: those that no digit, point or exponent goes on.
const STRING_OR_LONG_INTEGER = /"(?:[^"\\]|\\.)*"|-?\b\d{16,}\b(?![.eE])/g;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, "g");

// What the library's type hides: for a function or a symbol there is no text.
const stringify: (value: unknown, replacer?: Replacer) => string | undefined = JSON.stringify;
type Replacer = (this: Record<string, unknown>, key: string, value: unknown) => unknown;

/**
 * Reads JSON text.
 *
 * @throws SyntaxError if it is not JSON.
 */
export function parseJson(text: string): unknown {
  if (!MAYBE_LARGE.test(text)) {
    return JSON.parse(text);
  }
  let large = false as boolean;
  const marked = text.replace(STRING_OR_LONG_INTEGER, (token, at: number) => {
    // After a point or in an exponent it is a part of a number that is no integer.
    if (token.startsWith('"') || /[.eE+]/.test(text[at - 1] ?? "") || Number.isSafeInteger(Number(token))) {
      return token;
    }
    large = true;
    return `"${MARK}${token}"`;
  });
  // The text itself is judged first: a marked one could be JSON where the text is not, as `{12345678901234567890: 1}`.
  const plain: unknown = JSON.parse(text);
  return large ? JSON.parse(marked, restore) : plain;
}

function restore(_key: string, value: unknown): unknown {
  return typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value;
}

/**
 * Prints a value as JSON text; `undefined` is `null`.
 *
 * As `JSON.stringify` does it, apart from large integers: `toJSON` is called, properties that are `undefined` are left out.
 *
 * @throws TypeError for what JSON cannot say: NaN and infinities, functions and symbols at the top, values that contain
 * themselves.
 */
export function printJson(value: unknown): string {
  if (value === undefined) {
    return "null";
  }
  let text: string | undefined;
  try {
    // Programs that teach `bigint` to print itself, mostly as a string, must not change what is sent.
    text = "toJSON" in BigInt.prototype ? exact(value) : stringify(value);
    // The engine prints `null` for numbers that JSON does not have. Without a `null` there was none.
    if (text?.includes("null")) {
      text = exact(value);
    }
  } catch (error) {
    if (!hasBigint(error)) {
      throw error;
    }
    text = exact(value);
  }
  if (text === undefined) {
    throw new TypeError(`JSON cannot say a ${typeof value}`);
  }
  return text;
}

/**
 * Whether the server keeps a printed value: no U+0000 and no lone surrogate in a string. Only these are printed as such
 * escapes; a backslash of the text itself is printed as two.
 */
export function isStorable(text: string): boolean {
  return !/(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f][0-9a-f]{2})/.test(text);
}

function hasBigint(error: unknown): boolean {
  return error instanceof TypeError && error.message.includes("BigInt");
}

/** The slow way: every value is looked at. */
function exact(value: unknown): string | undefined {
  return stringify(value, mark)?.replace(MARKED, "$1");
}

function mark(this: Record<string, unknown>, key: string, value: unknown): unknown {
  const own = this[key];
  if (typeof own === "bigint") {
    return `${MARK}${String(own)}`;
  }
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new TypeError(`JSON cannot say ${String(value)}`);
  }
  return value;
}
