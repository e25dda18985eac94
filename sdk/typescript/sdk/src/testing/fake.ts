/**
 * An Orbit in memory, for unit tests of callers: workflows are functions of the test, everything else is the real client.
 *
 * Starts, ids, request ids, results, signals, queries, cancels and lists behave as with a server; definitions, schedules,
 * retries and histories are a server's own: test with `OrbitServer` what depends on them.
 */

import { Client, type ClientOptions } from "../client.js";
import { ExecutionFailedError, OrbitError, type Failure } from "../errors.js";
import { loggerOf } from "../logger.js";
import { decodePayload, encodePayload } from "../payload.js";
import type { AnyTask } from "../task.js";
import { fakeConnection } from "./connection.js";
import { FakeExecution } from "./execution.js";
import { runHandler } from "./run.js";

/** What a workflow's function works with. */
export interface FakeRun<Input = unknown> {
  /** Id of the execution. */
  readonly executionId: string;
  /** Input of the execution. */
  readonly input: Input;
  /** Aborted when somebody cancels the execution; the function should then end. */
  readonly signal: AbortSignal;
  /**
   * Runs a task of those that the fake was given, up to three attempts.
   *
   * @throws ExecutionFailedError if it fails for good; the execution fails with it unless the function catches it.
   */
  task<Output = unknown>(contract: string, input?: unknown): Promise<Output>;
  /** Waits for the next signal of this name. */
  receive<Payload = unknown>(name: string): Promise<Payload>;
  /** Answers a query from now on. */
  answer(query: string, result: unknown): void;
}

/** Stands for a workflow: what it returns is the output, what it throws fails the execution. */
export type FakeWorkflow<Input = unknown> = (run: FakeRun<Input>) => unknown;

/** What a fake begins with. */
export interface FakeOptions {
  /** Tasks that workflows can run. */
  readonly tasks?: readonly AnyTask[];
}

/** Attempts of a task, without pauses. */
const ATTEMPTS_MAX = 3;

/** An Orbit in memory. */
export class FakeOrbit {
  readonly #tasks: ReadonlyMap<string, AnyTask>;
  readonly #workflows = new Map<string, FakeWorkflow>();
  /** All executions, the oldest first. */
  readonly executions: FakeExecution[] = [];

  constructor(options: FakeOptions = {}) {
    this.#tasks = new Map((options.tasks ?? []).map((task) => [task.contract, task]));
  }

  /** Has a function stand for a workflow. */
  workflow<Input = unknown>(name: string, work: FakeWorkflow<Input>): this {
    this.#workflows.set(name, work as FakeWorkflow);
    return this;
  }

  /** A client of this fake. */
  client(options: Pick<ClientOptions, "logger"> = {}): Client {
    return new Client({ logger: loggerOf(() => undefined), ...options, connection: () => fakeConnection(this) });
  }

  /** Whether there is a workflow of this name. */
  has(name: string): boolean {
    return this.#workflows.has(name);
  }

  /** Begins an execution; its function runs at once. */
  begin(execution: FakeExecution): void {
    this.executions.push(execution);
    void this.#work(execution);
  }

  async #work(execution: FakeExecution): Promise<void> {
    try {
      const work = this.#workflows.get(execution.workflow);
      const output = await work?.({
        executionId: execution.id,
        input: decodePayload(execution.input),
        signal: execution.cancelling.signal,
        task: <Output>(contract: string, input?: unknown) => this.#task(execution, contract, input) as Promise<Output>,
        receive: async <Payload>(name: string) => decodePayload(await execution.receive(name)) as Payload,
        answer: (query, result) => {
          execution.answers.set(query, encodePayload(result));
        },
      });
      execution.succeed(encodePayload(output));
    } catch (error) {
      execution.fail(failureOf(error));
    }
  }

  async #task(execution: FakeExecution, contract: string, input: unknown): Promise<unknown> {
    const task = this.#tasks.get(contract);
    if (task === undefined) {
      throw new OrbitError(`the fake has no task ${contract}; give it to \`new FakeOrbit({ tasks })\``);
    }
    const options = {
      executionId: execution.id,
      workflow: execution.workflow,
      idempotencyKey: execution.nextKey(),
      signal: execution.cancelling.signal,
    };
    for (let attempt = 1; ; attempt++) {
      const outcome = await runHandler(task, input, { ...options, attempt, delivery: attempt });
      if (outcome.kind === "succeeded") {
        return outcome.output as unknown;
      }
      if (outcome.kind === "released") {
        throw new OrbitError("the execution was cancelled");
      }
      if (!outcome.retryable || attempt === ATTEMPTS_MAX) {
        const { code, message, details } = outcome;
        throw new ExecutionFailedError(execution.id, { code, message, unit: contract, details });
      }
    }
  }
}

function failureOf(error: unknown): Failure {
  if (error instanceof ExecutionFailedError) {
    return error.failure;
  }
  const message = error instanceof Error ? error.message : String(error);
  return { code: error instanceof Error ? error.name : "Error", message, unit: "", details: undefined };
}
