/** The handlers that every driver has. */

import {
  PermanentError,
  RetryableError,
  task,
  type AnyTask,
  type Middleware,
  type StandardSchema,
  type TaskContext,
} from "@orbit/sdk";
import { tell, type Fields } from "./lines.mjs";

/** A bug. */
class Boom extends Error {}

/** Longest wait of the handler `drain`. */
const DRAIN_MS = 60_000;

/** Gates that handlers wait at, and how often each key was counted: of the process, whatever worker runs. */
const gates = new Map<string, PromiseWithResolvers>();
const counts = new Map<string, number>();

interface PromiseWithResolvers {
  readonly promise: Promise<void>;
  readonly resolve: () => void;
}

/** Lets go all handlers that wait, or will wait, at a gate. */
export function openGate(name: string): void {
  gate(name).resolve();
}

function gate(name: string): PromiseWithResolvers {
  let found = gates.get(name);
  if (found === undefined) {
    let resolve = () => {};
    const promise = new Promise<void>((done) => {
      resolve = done;
    });
    found = { promise, resolve };
    gates.set(name, found);
  }
  return found;
}

/** Tells that a handler begins and ends, whatever it does. */
export const telling: Middleware = async (input, context, next) => {
  tellTask("begun", context);
  try {
    return await next(input);
  } finally {
    tellTask("ended", context);
  }
};

/** Makes the task of a contract from a handler's name. */
export function taskOf(contract: string, handler: string): AnyTask {
  if (handler === "typed") {
    return task(contract, { input: TYPED_INPUT, output: TYPED_OUTPUT }, ({ name, count }) => ({
      text: `${name} x${String(count)}`,
    }));
  }
  const work = HANDLERS[handler];
  if (work === undefined) {
    throw new Error(`there is no handler ${handler}`);
  }
  return task(contract, work as (input: unknown, context: TaskContext) => unknown);
}

// Inputs are what the suite sends; their fields are looked at where they are needed.
type Input = Fields;

const HANDLERS: Readonly<Record<string, (input: Input, context: TaskContext) => unknown>> = {
  echo: (input) => input,

  nothing: () => undefined,

  sleep: async (input, context) => {
    await listening(context, wait(seconds(input)));
    return { slept: input.seconds };
  },

  stubborn: async (input) => {
    await wait(seconds(input));
    return { slept: input.seconds };
  },

  gate: async (input, context) => {
    await listening(context, gate(String(input.gate)).promise);
    return { gate: input.gate };
  },

  drain: async (_input, context) => {
    const drained = new Promise<void>((resolve) => {
      if (context.draining) {
        resolve();
      }
      context.drainSignal.addEventListener("abort", () => resolve(), { once: true });
    });
    await listening(context, Promise.race([drained, wait(DRAIN_MS)]));
    return { drained: true };
  },

  fail: (input, context) => {
    if (isOver(input, context)) {
      return { attempt: context.attempt };
    }
    const message = typeof input.message === "string" ? input.message : "failed";
    const options = {
      ...(typeof input.code === "string" && { code: input.code }),
      ...(input.details !== undefined && { details: input.details }),
    };
    if (input.retryable !== true) {
      throw new PermanentError(message, options);
    }
    const after = input.retry_after_seconds;
    throw new RetryableError(message, {
      ...options,
      ...(typeof after === "number" && { retryAfterMs: after * 1000 }),
    });
  },

  panic: (input, context) => {
    if (isOver(input, context)) {
      return { attempt: context.attempt };
    }
    throw new Boom(String(input.message));
  },

  big: (input) => ({ data: "x".repeat(Number(input.bytes)) }),

  progress: async (input, context) => {
    const last = (context.lastProgress as { beat?: number } | undefined)?.beat;
    for (let beat = (last ?? 0) + 1; beat <= Number(input.beats); beat++) {
      context.heartbeat(input.silent === true ? undefined : { beat });
      await listening(context, wait(seconds(input)));
      if (context.attempt === 1 && beat === input.fail_at) {
        throw new RetryableError("interrupted", { code: "INTERRUPTED" });
      }
    }
    return { resumed_from: last ?? null, beats: input.beats };
  },

  context: (_input, context) => ({
    execution_id: context.executionId,
    run: context.run,
    workflow: context.workflow,
    step: context.step,
    contract: context.contract,
    attempt: context.attempt,
    delivery: context.delivery,
    redelivery: context.redelivery,
    idempotency_key: context.idempotencyKey,
    deadline_seconds: context.deadline === undefined ? null : (context.deadline.getTime() - Date.now()) / 1000,
    trace_parent: context.traceParent,
    last_progress: context.lastProgress ?? null,
    cancelled: context.cancelled,
    draining: context.draining,
  }),

  count: (_input, { idempotencyKey }) => {
    const times = (counts.get(idempotencyKey) ?? 0) + 1;
    counts.set(idempotencyKey, times);
    if (times === 1) {
      tell({ event: "effect", idempotency_key: idempotencyKey });
    }
    return { times };
  },

  log: (input, context) => {
    context.log.info(String(input.message));
    return null;
  },

  unsayable: () => {
    const circle: { self?: unknown } = {};
    circle.self = circle;
    return circle;
  },
};

function isOver(input: Input, { attempt }: TaskContext): boolean {
  return input.until_attempt !== undefined && attempt >= Number(input.until_attempt);
}

function seconds(input: Input): number {
  return Number(input.seconds ?? 0) * 1000;
}

function wait(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Waits for something, tells when it learns of a drain or a cancel, and ends with the cancel. */
async function listening(context: TaskContext, work: Promise<void>): Promise<void> {
  const { signal, drainSignal } = context;
  const drain = () => tellTask("draining", context);
  let cancel = () => {};
  if (context.draining) {
    drain();
  }
  drainSignal.addEventListener("abort", drain, { once: true });
  try {
    const cancelled = new Promise<never>((_resolve, reject) => {
      cancel = () => {
        tellTask("cancelled", context);
        reject(signal.reason as Error);
      };
      if (signal.aborted) {
        cancel();
      }
      signal.addEventListener("abort", cancel, { once: true });
    });
    await Promise.race([work, cancelled]);
  } finally {
    drainSignal.removeEventListener("abort", drain);
    signal.removeEventListener("abort", cancel);
  }
}

function tellTask(what: string, context: TaskContext): void {
  tell({
    event: "task",
    what,
    contract: context.contract,
    execution_id: context.executionId,
    step: context.step,
    attempt: context.attempt,
    delivery: context.delivery,
    redelivery: context.redelivery,
    idempotency_key: context.idempotencyKey,
  });
}

/** A schema by hand, so that the driver needs no library: what a function makes of a value, or what is wrong with it. */
function schema<T>(judge: (fields: Fields) => T | string): StandardSchema<T> {
  return {
    "~standard": {
      version: 1,
      vendor: "driver",
      validate: (value) => {
        const made = typeof value === "object" && value !== null ? judge(value as Fields) : "not an object";
        return typeof made === "string" ? { issues: [{ message: made }] } : { value: made };
      },
    },
  };
}

const TYPED_INPUT = schema(({ name, count }) =>
  typeof name === "string" && (Number.isInteger(count) || typeof count === "bigint")
    ? { name, count: count as number | bigint }
    : "not {name: string, count: integer}",
);
const TYPED_OUTPUT = schema(({ text }) => (typeof text === "string" ? { text } : "not {text: string}"));
