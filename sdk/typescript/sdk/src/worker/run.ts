/** Runs the handler of one delivery and makes its report, whatever happens. */

import { create } from "@bufbuild/protobuf";
import { CompleteSchema, FailSchema, ReportSchema, type Report } from "@orbit/api/orbit/worker/v1/worker_service_pb.js";
import { FailureSchema } from "@orbit/api/orbit/workflow/v1/execution_pb.js";
import { PermanentError, RetryableError } from "../errors.js";
import { isStorable, printJson } from "../json.js";
import { decodePayload, payloadOfText, UnknownPayloadError } from "../payload.js";
import { SchemaError, validate } from "../schema.js";
import type { AnyTask, Middleware } from "../task.js";
import { durationOf } from "../time.js";
import type { DeliveryContext } from "./context.js";

/** Largest output that the server takes, in bytes of JSON text. A larger one would end the stream that carries it. */
export const PAYLOAD_BYTES_MAX = 2 * 1024 * 1024;
/** Of a failure's details, so that the failure itself always arrives. */
const DETAILS_BYTES_MAX = 256 * 1024;
const MESSAGE_CHARACTERS_MAX = 16 * 1024;
const CODE_CHARACTERS_MAX = 63;

/** Runs a task; never throws. A handler that throws since its task was cancelled gives it back. */
export async function runTask(
  task: AnyTask,
  context: DeliveryContext,
  middleware: readonly Middleware[],
): Promise<Report> {
  const token = context.message.taskToken;
  try {
    const input = await readInput(task, context);
    if (context.cancelled) {
      return released(token);
    }
    const output = await innermost(task, context, middleware, 0)(input);
    return complete(token, await printOutput(task, output));
  } catch (error) {
    const deliberate = error instanceof PermanentError || error instanceof RetryableError;
    return context.cancelled && !deliberate ? released(token) : failed(token, error);
  }
}

function innermost(
  task: AnyTask,
  context: DeliveryContext,
  middleware: readonly Middleware[],
  index: number,
): (input: unknown) => Promise<unknown> {
  const layer = middleware[index];
  if (layer === undefined) {
    // `async` turns what a plain function throws into a rejection.
    return async (input) => (await task.handler(input, context)) as unknown;
  }
  return async (input) => layer(input, context, innermost(task, context, middleware, index + 1));
}

async function readInput(task: AnyTask, context: DeliveryContext): Promise<unknown> {
  const input = decodePayload(context.message.input);
  if (task.input === undefined) {
    return input;
  }
  return validate(task.input, input).catch((error: unknown) => {
    throw error instanceof SchemaError
      ? new PermanentError(`the input does not fit the handler: ${error.message}`, { code: "INPUT_INVALID", cause: error })
      : error;
  });
}

async function printOutput(task: AnyTask, output: unknown): Promise<string> {
  let value = output;
  if (task.output !== undefined) {
    // Retryable, as for an output that the server's own schema refuses: another attempt may give another one.
    value = await validate(task.output, output).catch((error: unknown) => {
      throw error instanceof SchemaError
        ? new RetryableError(`the output does not fit: ${error.message}`, { code: "OUTPUT_INVALID", cause: error })
        : error;
    });
  }
  let text: string;
  try {
    text = printJson(value);
  } catch (cause) {
    throw new PermanentError(`JSON cannot say the output: ${messageOf(cause)}`, { code: "OUTPUT_UNENCODABLE", cause });
  }
  const bytes = Buffer.byteLength(text);
  if (bytes > PAYLOAD_BYTES_MAX) {
    const message = `the output has ${String(bytes)} bytes of JSON; ${String(PAYLOAD_BYTES_MAX)} are allowed`;
    throw new PermanentError(message, { code: "PAYLOAD_TOO_LARGE" });
  }
  return text;
}

// --- Reports ------------------------------------------------------------------------------------------------------------

/** A success. */
export function complete(taskToken: string, json: string): Report {
  const value = create(CompleteSchema, { output: payloadOfText(json) });
  return create(ReportSchema, { taskToken, kind: { case: "complete", value } });
}

/** A task that is given back. */
export function released(taskToken: string): Report {
  return create(ReportSchema, { taskToken, kind: { case: "release", value: {} } });
}

/** A failure, with the code and the fate of what was thrown. */
export function failed(taskToken: string, error: unknown): Report {
  const value = create(FailSchema, { retryable: !(error instanceof PermanentError) });
  let code: string;
  let details: string | undefined;
  if (error instanceof PermanentError || error instanceof RetryableError) {
    code = error.code;
    details = error.details === undefined ? undefined : printDetails(error.details);
    if (error instanceof RetryableError && error.retryAfterMs !== undefined) {
      value.retryAfter = durationOf(Math.max(0, error.retryAfterMs));
    }
  } else if (error instanceof UnknownPayloadError) {
    code = "PAYLOAD_UNKNOWN";
    value.retryable = false;
  } else {
    code = className(error);
    details = printDetails({ stack: error instanceof Error ? (error.stack ?? "") : messageOf(error) });
  }
  value.failure = create(FailureSchema, {
    code: code.replace(/[^A-Za-z0-9_.-]/g, "_").slice(0, CODE_CHARACTERS_MAX) || "FAILED",
    message: messageOf(error).slice(0, MESSAGE_CHARACTERS_MAX),
  });
  if (details !== undefined) {
    value.failure.details = payloadOfText(details);
  }
  return create(ReportSchema, { taskToken, kind: { case: "fail", value } });
}

/** Details must never stand in the way of the failure: what cannot be said or is too long is left out. */
function printDetails(details: unknown): string | undefined {
  try {
    const text = printJson(details);
    return Buffer.byteLength(text) <= DETAILS_BYTES_MAX && isStorable(text) ? text : undefined;
  } catch {
    return undefined;
  }
}

/** The name that an error's class gave itself, or the class's own. */
function className(error: unknown): string {
  if (!(error instanceof Error)) {
    return "Error";
  }
  return error.name === "Error" ? error.constructor.name : error.name;
}

function messageOf(error: unknown): string {
  if (error instanceof Error) {
    return error.message;
  }
  return typeof error === "string" ? error : `a handler threw ${describe(error)}`;
}

function describe(value: unknown): string {
  try {
    return printJson(value);
  } catch {
    return typeof value;
  }
}
