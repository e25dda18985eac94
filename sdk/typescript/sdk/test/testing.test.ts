import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import {
  AlreadyExistsError,
  DeadlineExceededError,
  ExecutionCancelledError,
  ExecutionFailedError,
  FailedPreconditionError,
  NotFoundError,
  PermanentError,
  RetryableError,
  task,
  TaskCancelledError,
  workflow,
  type TaskContext,
} from "@orbit/sdk";
import { FakeOrbit, runHandler, type HandlerOutcome } from "@orbit/sdk/testing";
import { z } from "zod";

const charge = task(
  "payments.charge@1",
  { input: z.object({ cents: z.number().int().positive() }), output: z.object({ receipt: z.string() }) },
  ({ cents }, context) => {
    if (cents > 1000) {
      throw new PermanentError("too much", { code: "CARD_DECLINED", details: { limit: 1000 } });
    }
    if (context.attempt === 1) {
      throw new RetryableError("busy", { code: "BUSY", retryAfterMs: 1500 });
    }
    context.heartbeat({ half: true });
    return { receipt: `R-${String(cents)}` };
  },
);

test("a handler is run as if dispatched", async () => {
  assert.deepEqual(await runHandler(charge, { cents: 5 }, { attempt: 2 }), {
    kind: "succeeded",
    output: { receipt: "R-5" },
    progress: [{ half: true }],
  });
});

test("a handler's errors are told as a worker would report them", async () => {
  const retried = await runHandler(charge, { cents: 5 });
  assert.deepEqual([retried.kind, retried.kind === "failed" && retried.retryAfterMs], ["failed", 1500]);
  const declined = await runHandler(charge, { cents: 5000 });
  assert.ok(declined.kind === "failed");
  assert.deepEqual([declined.code, declined.retryable, declined.details], ["CARD_DECLINED", false, { limit: 1000 }]);
  const invalid = await runHandler(charge, { cents: -1 });
  assert.ok(invalid.kind === "failed");
  assert.deepEqual([invalid.code, invalid.retryable], ["INPUT_INVALID", false]);
  assert.match(invalid.message, /cents/);
});

test("an error of another class gives its name, its message and where it came from", async () => {
  const broken = task("broken@1", () => {
    throw new TypeError("no such thing");
  });
  const outcome = await runHandler(broken, null);
  assert.ok(outcome.kind === "failed");
  assert.deepEqual([outcome.code, outcome.message, outcome.retryable], ["TypeError", "no such thing", true]);
  assert.match((outcome.details as { stack: string }).stack, /testing\.test/);
});

test("an output that does not fit is retryable, one that cannot be said or is too large is not", async () => {
  const wrong = await runHandler(task("a@1", { output: z.object({ n: z.number() }) }, () => ({ n: "1" as never })), null);
  const unsayable = await runHandler(task("a@1", () => NaN), null);
  const large = await runHandler(task("a@1", () => "x".repeat(3_000_000)), null);
  const told = [wrong, unsayable, large].map((outcome) => outcome.kind === "failed" && [outcome.code, outcome.retryable]);
  assert.deepEqual(told, [["OUTPUT_INVALID", true], ["OUTPUT_UNENCODABLE", false], ["PAYLOAD_TOO_LARGE", false]]);
});

/** Runs a handler and cancels it once it has begun. */
async function runAndCancel(handler: (context: TaskContext) => unknown): Promise<HandlerOutcome<unknown>> {
  const abort = new AbortController();
  const cancelled = task("cancelled@1", (_input, context) => {
    setImmediate(() => {
      abort.abort();
    });
    return handler(context);
  });
  return runHandler(cancelled, null, { signal: abort.signal });
}

test("a handler that ends by its cancel gives the task back, one that ends well all the same does not", async () => {
  const released = await runAndCancel(({ signal }) => sleep(60_000, undefined, { signal }));
  assert.equal(released.kind, "released");
  const ended = await runAndCancel(async (context) => {
    await sleep(20);
    assert.throws(() => {
      context.heartbeat();
    }, TaskCancelledError);
    return { cancelled: context.cancelled };
  });
  assert.deepEqual(ended.kind === "succeeded" && ended.output, { cancelled: true });
  const failed = await runAndCancel(async () => {
    await sleep(20);
    throw new PermanentError("no", { code: "NO" });
  });
  assert.equal(failed.kind === "failed" && failed.code, "NO");
});

test("progress that the server would not take is refused where it is told", async () => {
  const tells = (progress: unknown) => runHandler(task("tells@1", (_input, context) => context.heartbeat(progress)), null);
  for (const [progress, code] of [
    ["x".repeat(70_000), "RangeError"],
    [{ a: ["\u0000"] }, "TypeError"],
    ["\ud800", "TypeError"],
    [NaN, "TypeError"],
  ] as const) {
    const outcome = await tells(progress);
    assert.equal(outcome.kind === "failed" && outcome.code, code);
  }
  for (const progress of ["\\u0000", "\ud83d\ude80", { page: 7 }, null]) {
    assert.deepEqual((await tells(progress)).progress, [progress]);
  }
});

test("a task that is cancelled before its handler begins does not begin it", async () => {
  const never = task("never@1", () => assert.fail("it began"));
  assert.equal((await runHandler(never, null, { signal: AbortSignal.abort() })).kind, "released");
});

test("middleware stands around the handler in order, and may change input and output", async () => {
  const seen: string[] = [];
  const double = task("double@1", (n: number) => {
    seen.push("handler");
    return n * 2;
  });
  const outcome = await runHandler(double, 1, {
    middleware: [
      async (input, context, next) => {
        seen.push(`outer ${context.contract}`);
        return { wrapped: await next(input) };
      },
      async (input, _context, next) => {
        seen.push("inner");
        return next((input as number) + 1);
      },
    ],
  });
  assert.deepEqual(outcome.kind === "succeeded" && outcome.output, { wrapped: 4 });
  assert.deepEqual(seen, ["outer double@1", "inner", "handler"]);
});

// --- The fake -----------------------------------------------------------------------------------------------------------

const order = workflow<{ cents: number }, { receipt: string; by: string }>("order");

function fake(): FakeOrbit {
  return new FakeOrbit({ tasks: [charge] }).workflow<{ cents: number }>("order", async (run) => {
    run.answer("state", "charging");
    const { receipt } = await run.task<{ receipt: string }>("payments.charge@1", run.input);
    run.answer("state", "waiting");
    const { by } = await run.receive<{ by: string }>("approved");
    return { receipt, by };
  });
}

test("a caller of the fake starts, queries, signals and gets the typed output", async () => {
  const client = fake().client();
  const started = await client.start(order, { cents: 5 }, { id: "a" });
  assert.ok(started.created);
  assert.equal(await started.signal("approved", { by: "ann" }), 2);
  const { receipt, by } = await started.result({ timeoutMs: 2_000 });
  assert.deepEqual([receipt, by], ["R-5", "ann"]);
  assert.equal(await started.query("state"), "waiting");
  const types: string[] = [];
  for await (const { type } of started.events()) {
    types.push(type);
  }
  assert.deepEqual(types, ["executionCreated", "signalReceived", "executionSucceeded"]);
  await assert.rejects(started.signal("approved"), FailedPreconditionError);
});

test("the fake knows an id, a request id, and what it does not have", async () => {
  const client = fake().client();
  const first = await client.start(order, { cents: 5 }, { id: "a", requestId: "r" });
  const again = await client.start(order, { cents: 5 }, { id: "a", requestId: "r" });
  const found = await client.start(order, { cents: 5 }, { id: "a" });
  assert.deepEqual([again.uid, again.created, found.uid, found.created], [first.uid, true, first.uid, false]);
  await assert.rejects(client.start(order, { cents: 6 }, { id: "a" }), AlreadyExistsError);
  await assert.rejects(client.start("nothing"), NotFoundError);
  await assert.rejects(client.handle("b").describe(), NotFoundError);
});

test("an execution of the fake fails as its task does, is cancelled, and a wait for it has a limit", async () => {
  const client = fake().client();
  const failing = await client.start(order, { cents: 5000 });
  await assert.rejects(failing.result(), (error: ExecutionFailedError) => error.failure.code === "CARD_DECLINED");
  const waiting = await client.start(order, { cents: 5 });
  await assert.rejects(waiting.result({ timeoutMs: 50 }), DeadlineExceededError);
  await waiting.cancel({ reason: "enough" });
  await assert.rejects(waiting.result(), ExecutionCancelledError);
  const states: string[] = [];
  for await (const { state } of client.list()) {
    states.push(state);
  }
  assert.deepEqual(states, ["CANCELLED", "FAILED"]);
});
