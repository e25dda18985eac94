/** Calls that are sent again while the server is away, within one deadline. */

import type { CallOptions } from "@connectrpc/connect";
import { Backoff, monotonic, sleep } from "./clock.js";
import { CancelledError, DeadlineExceededError, orbitError, UnavailableError, type OrbitError } from "./errors.js";

/** How long a call may take. */
export interface CallLimits {
  /** Longest time for the call with all its repetitions, in milliseconds. */
  readonly timeoutMs?: number | undefined;
  /** Ends the call; it then throws `CancelledError`. */
  readonly signal?: AbortSignal | undefined;
}

/** Longest time for a call unless its caller says otherwise, in milliseconds. */
export const CALL_TIMEOUT_MS = 10_000;

/** How long the server holds a call that waits, at most, and how much longer its answer may take. */
const HOLD_MS = 20_000;
const GRACE_MS = 5_000;

/**
 * Makes a unary call, again and again on UNAVAILABLE, until its time is up. The pauses grow, and are never shorter than
 * the server asks for.
 *
 * The request is made by the caller, once: its `request_id` makes the repetitions one call.
 *
 * @throws OrbitError of the situation; the last `UnavailableError` if the server stayed away.
 */
export async function call<T>(send: (options: CallOptions) => Promise<T>, limits: CallLimits = {}): Promise<T> {
  const end = monotonic() + (limits.timeoutMs ?? CALL_TIMEOUT_MS);
  const backoff = new Backoff(100, 2_000);
  for (;;) {
    try {
      return await send(callOptions(end - monotonic(), limits.signal));
    } catch (thrown) {
      const error = orbitError(thrown, limits.signal);
      const pause = pauseAfter(error, backoff);
      if (pause === undefined || monotonic() + pause >= end) {
        throw error;
      }
      await pauseFor(pause, limits.signal);
    }
  }
}

/**
 * Makes a call that waits on the server's side, as one of many: each is held for `holdMs` at most, `done` tells whether an
 * answer is the last one. Outages in between do not end it, only `timeoutMs` does (default: never).
 *
 * @throws DeadlineExceededError once the time is up, or the error of a refused call.
 */
export async function wait<T>(
  send: (holdMs: number, options: CallOptions) => Promise<T>,
  done: (answer: T) => boolean,
  limits: CallLimits,
): Promise<T> {
  const end = monotonic() + (limits.timeoutMs ?? Number.POSITIVE_INFINITY);
  const backoff = new Backoff(100, 2_000);
  for (;;) {
    const left = end - monotonic();
    if (left <= 0) {
      throw new DeadlineExceededError("the time limit passed", { code: "DEADLINE_EXCEEDED" });
    }
    const holdMs = Math.min(HOLD_MS, left);
    try {
      const answer = await send(holdMs, callOptions(Math.min(holdMs + GRACE_MS, left + 100), limits.signal));
      backoff.reset();
      if (done(answer)) {
        return answer;
      }
    } catch (thrown) {
      const error = orbitError(thrown, limits.signal);
      // A held call that is not answered means a connection that died, or that the caller's time is up: seen above.
      const pause = error instanceof DeadlineExceededError ? 0 : pauseAfter(error, backoff);
      if (pause === undefined) {
        throw error;
      }
      await pauseFor(Math.min(pause, end - monotonic()), limits.signal);
    }
  }
}

/** How long to wait before the same call is worth another try; `undefined` if it never is. */
export function pauseAfter(error: OrbitError, backoff: Backoff): number | undefined {
  return error instanceof UnavailableError ? Math.max(backoff.next(), error.retryAfterMs ?? 0) : undefined;
}

/**
 * Waits between two tries.
 *
 * @throws CancelledError if the signal ends it.
 */
export async function pauseFor(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  await sleep(milliseconds, signal);
  if (signal?.aborted === true) {
    throw new CancelledError("the call was cancelled", { code: "CANCELLED", cause: signal.reason });
  }
}

function callOptions(timeoutMs: number, signal: AbortSignal | undefined): CallOptions {
  // The transport takes zero for no limit at all.
  const limit = { timeoutMs: Math.max(1, Math.ceil(timeoutMs)) };
  return signal === undefined ? limit : { ...limit, signal };
}
