/**
 * Errors: what a call can throw, what a handler throws, and how an execution can end other than well.
 *
 * Every error of a call is an `OrbitError` with the server's `reason`; there is one class for each situation, so that
 * `instanceof` tells them apart.
 */

import { Code, ConnectError } from "@connectrpc/connect";
import { readDetails, type FieldViolation } from "./details.js";

/** What an `OrbitError` is made of. */
export interface OrbitErrorParts {
  /** gRPC code as in `NOT_FOUND`; empty if the error is of no call. */
  readonly code?: string;
  /** Name of an `ErrorReason` without its prefix, as in `EXECUTION_NOT_FOUND`; empty if there was none. */
  readonly reason?: string;
  /** Facts about the error, by name. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** All fields that the server does not take, with `InvalidArgumentError`. */
  readonly violations?: readonly FieldViolation[];
  /** Shortest pause before the same call can work, in milliseconds. */
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/** Any error of this SDK's that a caller may want to catch. */
export class OrbitError extends Error {
  override readonly name: string = "OrbitError";
  /** gRPC code as in `NOT_FOUND`; empty if the error is of no call. */
  readonly code: string;
  /** Why, for programs: an `ErrorReason` without its prefix, as in `EXECUTION_NOT_FOUND`; empty if the server did not say. */
  readonly reason: string;
  /** What belongs to the reason, by name. */
  readonly metadata: Readonly<Record<string, string>>;
  /** All bad fields of the request, with `InvalidArgumentError`. */
  readonly violations: readonly FieldViolation[];
  /** Shortest pause before the same call can work, in milliseconds; `undefined` if the server asks for none. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, parts: OrbitErrorParts = {}) {
    super(message, parts.cause === undefined ? undefined : { cause: parts.cause });
    this.code = parts.code ?? "";
    this.reason = parts.reason ?? "";
    this.metadata = parts.metadata ?? {};
    this.violations = parts.violations ?? [];
    this.retryAfterMs = parts.retryAfterMs;
  }
}

/** What the call names does not exist. */
export class NotFoundError extends OrbitError {
  override readonly name = "NotFoundError";
}
/** What the call would make exists with other content. */
export class AlreadyExistsError extends OrbitError {
  override readonly name = "AlreadyExistsError";
}
/** The request is wrong as such; `violations` has every bad field. */
export class InvalidArgumentError extends OrbitError {
  override readonly name = "InvalidArgumentError";
}
/** Not possible in the present state, for example a signal to a closed execution. */
export class FailedPreconditionError extends OrbitError {
  override readonly name = "FailedPreconditionError";
}
/** Somebody else was first, for example since an etag was read: read again, and decide again. */
export class AbortedError extends OrbitError {
  override readonly name = "AbortedError";
}
/** The credentials are not enough. */
export class PermissionDeniedError extends OrbitError {
  override readonly name = "PermissionDeniedError";
}
/** Credentials are missing or wrong. */
export class UnauthenticatedError extends OrbitError {
  override readonly name = "UnauthenticatedError";
}
/** A limit is reached; `retryAfterMs` tells when it is worth another try. */
export class ResourceExhaustedError extends OrbitError {
  override readonly name = "ResourceExhaustedError";
}
/** The server or its database cannot be reached, and the call's time is up. */
export class UnavailableError extends OrbitError {
  override readonly name = "UnavailableError";
}
/** A time limit passed. A write may have happened; the same `requestId` tells. */
export class DeadlineExceededError extends OrbitError {
  override readonly name = "DeadlineExceededError";
}
/** A fault of the server's. */
export class InternalError extends OrbitError {
  override readonly name = "InternalError";
}
/** The caller's signal ended the call. */
export class CancelledError extends OrbitError {
  override readonly name = "CancelledError";
}
/** The server does not have this rpc. */
export class UnimplementedError extends OrbitError {
  override readonly name = "UnimplementedError";
}
/** Address, credentials or profile do not make sense. No call was made. */
export class ConfigError extends OrbitError {
  override readonly name = "ConfigError";
}

const CLASSES: Partial<Record<Code, new (message: string, parts: OrbitErrorParts) => OrbitError>> = {
  [Code.NotFound]: NotFoundError,
  [Code.AlreadyExists]: AlreadyExistsError,
  [Code.InvalidArgument]: InvalidArgumentError,
  [Code.FailedPrecondition]: FailedPreconditionError,
  [Code.Aborted]: AbortedError,
  [Code.PermissionDenied]: PermissionDeniedError,
  [Code.Unauthenticated]: UnauthenticatedError,
  [Code.ResourceExhausted]: ResourceExhaustedError,
  [Code.Unavailable]: UnavailableError,
  [Code.DeadlineExceeded]: DeadlineExceededError,
  [Code.Internal]: InternalError,
  [Code.Canceled]: CancelledError,
  [Code.Unimplemented]: UnimplementedError,
};

// What a broken connection looks like, where no server has sent the error. Whether it did the call is unknown.
const BROKEN: ReadonlySet<Code> = new Set([
  Code.Aborted,
  Code.Canceled,
  Code.Internal,
  Code.Unavailable,
  Code.Unknown,
  Code.DataLoss,
]);

/**
 * Turns whatever a call threw into an `OrbitError`.
 *
 * What looks like a broken connection and was not the caller's doing (`signal`) is `UnavailableError`, and so is a cancel that
 * somebody on the way sent.
 */
export function orbitError(thrown: unknown, signal?: AbortSignal): OrbitError {
  if (thrown instanceof OrbitError) {
    return thrown;
  }
  const error = ConnectError.from(thrown);
  const fromServer = error.metadata.has("grpc-status");
  if (!fromServer && signal?.aborted === true) {
    return new CancelledError("the call was cancelled", { code: "CANCELLED", cause: signal.reason });
  }
  const isBroken = fromServer ? error.code === Code.Canceled : BROKEN.has(error.code);
  const code = isBroken ? Code.Unavailable : error.code;
  const raw = error.details.flatMap((detail) => ("type" in detail ? [detail] : []));
  const { reason, metadata, violations, retryAfterMs } = readDetails(raw);
  const parts = { code: codeName(code), reason, metadata, violations, retryAfterMs, cause: thrown };
  return new (CLASSES[code] ?? OrbitError)(error.rawMessage, parts);
}

// `Canceled` is the one code whose name in the protocol is spelled otherwise.
function codeName(code: Code): string {
  return code === Code.Canceled ? "CANCELLED" : Code[code].replace(/(?<=[a-z])[A-Z]/g, "_$&").toUpperCase();
}

// --- What handlers throw ------------------------------------------------------------------------------------------------

/** How an attempt is to fail. */
export interface FailureOptions {
  /** For programs: the definition's `retry.non_retryable` names codes. 1 to 63 of `A-Z a-z 0-9 _ . -`. Default `FAILED`. */
  readonly code?: string;
  /** Further data, anything that JSON can say. */
  readonly details?: unknown;
  readonly cause?: unknown;
}

/** Fails a task so that it is not tried again, whatever its retry policy says. */
export class PermanentError extends Error {
  override readonly name = "PermanentError";
  /** For programs. */
  readonly code: string;
  /** Further data, anything that JSON can say. */
  readonly details: unknown;

  constructor(message: string, options: FailureOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = options.code ?? "FAILED";
    this.details = options.details;
  }
}

/** Fails an attempt with a code of its own; the next one follows as the step's retry policy says. */
export class RetryableError extends Error {
  override readonly name = "RetryableError";
  /** For programs: the definition's `retry.non_retryable` names codes. */
  readonly code: string;
  /** Further data, anything that JSON can say. */
  readonly details: unknown;
  /** Shortest pause before the next attempt, in milliseconds; the policy's pause counts if it is longer. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, options: FailureOptions & { readonly retryAfterMs?: number } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = options.code ?? "FAILED";
    this.details = options.details;
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** Why a task's `signal` was aborted: its result is not wanted any more, or the worker's drain time is over. */
export class TaskCancelledError extends Error {
  override readonly name = "TaskCancelledError";
}

// --- How executions end -------------------------------------------------------------------------------------------------

/** Why a step or an execution failed. */
export interface Failure {
  /** For programs. */
  readonly code: string;
  /** For people. */
  readonly message: string;
  /** Unit that failed; empty where the failure is of no unit. */
  readonly unit: string;
  /** Further data; `undefined` if there is none. */
  readonly details: unknown;
}

/** An execution that was waited for did not end well. */
export class ExecutionEndedError extends OrbitError {
  override readonly name: string = "ExecutionEndedError";

  constructor(
    message: string,
    /** Id of the execution. */
    readonly executionId: string,
  ) {
    super(message);
  }
}
/** It failed; `failure` says why. */
export class ExecutionFailedError extends ExecutionEndedError {
  override readonly name = "ExecutionFailedError";

  constructor(
    executionId: string,
    /** Why it failed. */
    readonly failure: Failure,
  ) {
    super(`execution ${executionId} failed: ${failure.message} (${failure.code})`, executionId);
  }
}
/** Somebody cancelled it. */
export class ExecutionCancelledError extends ExecutionEndedError {
  override readonly name = "ExecutionCancelledError";
}
/** Its own timeout ended it. */
export class ExecutionTimedOutError extends ExecutionEndedError {
  override readonly name = "ExecutionTimedOutError";
}
/** Somebody terminated it. */
export class ExecutionTerminatedError extends ExecutionEndedError {
  override readonly name = "ExecutionTerminatedError";
}
