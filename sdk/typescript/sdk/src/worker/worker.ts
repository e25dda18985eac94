/**
 * A worker: registers, fetches tasks, runs their handlers and reports, through every outage, until it is told to stop.
 *
 * - It connects again for ever, with growing random pauses of at most ten seconds, and logs one record for each change.
 * - Every token that it holds is listed in its heartbeats, from receipt until the report is answered.
 * - A result that is finished during an outage is delivered when the outage ends.
 * - One rule for its end: it stops taking tasks; handlers learn that it drains (`drainSignal`); after the drain time they are
 *   cancelled (`signal`); at most five seconds later what has not ended is given back and `run` returns. Its last record tells
 *   how many tasks were reported, given back (`released`) and neither (`unreported`) since then.
 */

import { setMaxListeners } from "node:events";
import { hostname } from "node:os";
import type { Task as TaskMessage } from "@orbit/api/orbit/workflow/v1/task_pb.js";
import type { Client } from "../client.js";
import { OrbitError } from "../errors.js";
import type { Logger } from "../logger.js";
import { task as makeTask, type AnyTask, type Handler, type Middleware, type Task, type TaskSchemas } from "../task.js";
import type { SchemaInput, SchemaOutput, StandardSchema } from "../schema.js";
import { SDK } from "../version.js";
import { DeliveryContext, taskFields } from "./context.js";
import { Holdings } from "./holdings.js";
import { Link, type Mode, type State } from "./link.js";
import { runTask } from "./run.js";
import { watchThread } from "./watchdog.js";

/** Largest message that a worker takes, in bytes. */
const MESSAGE_BYTES_MAX = 16n * 1024n * 1024n;
const STREAM_RETRY_MS = 60_000;
/** After the drain time: how long cancelled handlers get, then the last reports, then the goodbye, in milliseconds. */
const CANCELLED_MS = 4_000;
const DELIVERY_MS = 500;
const GOODBYE_MS = 500;
const GOODBYE_MS_MAX = 2_000;

/** How a worker works. Every field has a default that suits one process beside a server. */
export interface WorkerOptions {
  /** The tasks that it does. More can be added with `worker.task`. */
  readonly tasks?: readonly AnyTask[];
  /** Queues that it serves, at most 100. Default: `["default"]`. */
  readonly queues?: readonly string[];
  /** Most tasks at once, 1 to 10,000. Default 100. */
  readonly slots?: number;
  /** Name of the worker, for people. Two processes may share it. Default: the host's name and the process id. */
  readonly workerId?: string;
  /** Build of the worker, for people, for example a commit. */
  readonly build?: string;
  /** How long running handlers may go on once the worker is told to stop, in milliseconds. Default 30,000. */
  readonly drainTimeoutMs?: number;
  /** How tasks come: `stream`, `poll`, or `auto`, a stream with polls where streams do not get through. Default `auto`. */
  readonly mode?: Mode | "auto";
  /**
   * How long polls stand in, in the mode `auto`, before a stream is tried again, in milliseconds. Nobody notices a try that
   * fails. Default 60,000.
   */
  readonly streamRetryMs?: number;
  /** What stands around every handler, the first one outermost. */
  readonly middleware?: readonly Middleware[];
  /** Where the worker and its handlers' loggers write. Default: the client's. */
  readonly logger?: Logger;
  /** Told each change of the worker's state, once. */
  readonly onState?: (state: State, mode: Mode | undefined) => void;
}

/** What `run` takes. */
export interface RunOptions {
  /** Begins to stop the worker, as `stop` does. */
  readonly signal?: AbortSignal;
  /** Whether SIGTERM and SIGINT stop the worker; a second one then ends the process at once. Default true. */
  readonly handleSignals?: boolean;
}

/** How a worker does. */
export interface WorkerStatus {
  /** Where it is in its life; `connecting` before `run`. */
  readonly state: State;
  /** How tasks come; `undefined` before the first connection. */
  readonly mode: Mode | undefined;
  /** Tasks from their receipt until their report is answered. */
  readonly held: number;
  /** Handlers at work. */
  readonly running: number;
  /** Most tasks at once. */
  readonly slots: number;
  /** When the server last answered; `undefined` if it never did. */
  readonly lastContact: Date | undefined;
  /** Whether the server has answered within a session timeout, and the worker has not stopped. */
  readonly healthy: boolean;
}

/** One worker. It has a connection of its own, with the client's settings. */
export class Worker {
  readonly #tasks = new Map<string, AnyTask>();
  readonly #options: WorkerOptions;
  readonly #log: Logger;
  readonly #slots: number;
  readonly #stopping = new AbortController();
  readonly #drain = new AbortController();
  #link: Link | undefined;
  #holdings: Holdings | undefined;

  constructor(
    private readonly client: Client,
    options: WorkerOptions = {},
  ) {
    this.#options = options;
    this.#log = options.logger ?? client.logger;
    this.#slots = options.slots ?? 100;
    if (!Number.isInteger(this.#slots) || this.#slots < 1 || this.#slots > 10_000) {
      throw new RangeError(`slots is ${String(this.#slots)}, not 1 to 10000`);
    }
    // As many handlers may listen as there are slots.
    setMaxListeners(0, this.#drain.signal);
    for (const each of options.tasks ?? []) {
      this.#add(each);
    }
  }

  /** Adds a task; before `run`. */
  task<Input, Output>(task: Task<Input, Output>): Task<Input, Output>;
  /** Adds a task that schemas type and judge. */
  task<Input extends StandardSchema = StandardSchema, Output extends StandardSchema = StandardSchema>(
    contract: string,
    schemas: TaskSchemas<Input, Output>,
    handler: Handler<SchemaOutput<Input>, SchemaInput<Output>>,
  ): Task<SchemaOutput<Input>, SchemaInput<Output>>;
  /** Adds a task that plain types describe. */
  task<Input = unknown, Output = unknown>(contract: string, handler: Handler<Input, Output>): Task<Input, Output>;
  task(
    first: string | AnyTask,
    second?: Handler | TaskSchemas<StandardSchema, StandardSchema>,
    third?: Handler,
  ): Task {
    let added: Task;
    if (typeof first !== "string") {
      added = first as Task;
    } else if (typeof second === "function") {
      added = makeTask(first, second);
    } else if (second !== undefined && third !== undefined) {
      added = makeTask(first, second, third);
    } else {
      throw new TypeError(`task ${first} has no handler`);
    }
    this.#add(added);
    return added;
  }

  /** Begins to stop: the shutdown rule runs, then `run` returns. */
  stop(): void {
    this.#stopping.abort();
  }

  /** How the worker does; also before and after `run`. */
  status(): WorkerStatus {
    const link = this.#link;
    const contact = link?.lastContact;
    const silentMs = contact === undefined ? Number.POSITIVE_INFINITY : Date.now() - contact.getTime();
    return {
      state: link?.state ?? "connecting",
      mode: link?.mode,
      held: this.#holdings?.size ?? 0,
      running: this.#holdings?.running ?? 0,
      slots: this.#slots,
      lastContact: contact,
      healthy: link !== undefined && link.state !== "stopped" && silentMs <= link.timeoutMs,
    };
  }

  /**
   * Works until it is told to stop by `stop`, a signal or `options.signal`, then stops in order. A worker runs once.
   *
   * @throws OrbitError if the server refuses the first registration as such: a contract that is no `name@version`,
   * credentials that are not enough.
   */
  async run(options: RunOptions = {}): Promise<void> {
    if (this.#link !== undefined) {
      throw new OrbitError("a worker runs once; make another one");
    }
    if (this.#tasks.size === 0) {
      throw new OrbitError("a worker without tasks has nothing to do");
    }
    const connection = this.client.openConnection();
    const holdings = new Holdings(this.#slots, (message) => this.#start(message), this.#log);
    const link = this.#makeLink(connection, holdings);
    this.#link = link;
    this.#holdings = holdings;

    const ended = new AbortController();
    const unhook = this.#hookSignals(options);
    const unwatch = watchThread(this.#log, () => holdings.contracts());
    try {
      const working = link.run(ended.signal);
      await Promise.race([working, aborted(this.#stopping.signal)]);
      const begin = performance.now();
      const end = await this.#shutDown(link, holdings);
      ended.abort();
      await link.unregister(Math.min(GOODBYE_MS_MAX, Math.max(GOODBYE_MS, end - performance.now())));
      const seconds = Math.round((performance.now() - begin) / 100) / 10;
      this.#log.info("stopped", { ...holdings.farewell(), seconds });
    } finally {
      unhook();
      unwatch();
      ended.abort();
      connection.reset();
      link.enter("stopped");
    }
  }

  #makeLink(connection: ReturnType<Client["openConnection"]>, holdings: Holdings): Link {
    const registration = {
      workerId: this.#options.workerId ?? `${hostname()}-${String(process.pid)}`.slice(0, 128),
      language: "typescript",
      sdk: SDK,
      build: this.#options.build ?? "",
      queues: [...(this.#options.queues ?? ["default"])],
      contracts: [...this.#tasks.keys()].sort(),
      slots: this.#slots,
      messageBytesMax: MESSAGE_BYTES_MAX,
    };
    const onState = (state: State, mode: Mode | undefined) => this.#options.onState?.(state, mode);
    const { mode = "auto", streamRetryMs = STREAM_RETRY_MS } = this.#options;
    return new Link(connection, holdings, registration, mode, streamRetryMs, this.#log, onState);
  }

  #start(message: TaskMessage): { context: DeliveryContext; report: ReturnType<typeof runTask> } | undefined {
    const task = this.#tasks.get(message.contract);
    if (task === undefined) {
      this.#log.error("a task came whose contract this worker does not do; it is given back", taskFields(message));
      return undefined;
    }
    const context = new DeliveryContext(message, this.#drain.signal, this.#log);
    return { context, report: runTask(task, context, this.#options.middleware ?? []) };
  }

  /** The shutdown rule, but for the goodbye; returns when `run` must have returned at the latest, by `performance.now()`. */
  async #shutDown(link: Link, holdings: Holdings): Promise<number> {
    const drainMs = this.#options.drainTimeoutMs ?? 30_000;
    const cancelAt = performance.now() + drainMs;
    const end = cancelAt + CANCELLED_MS + DELIVERY_MS + GOODBYE_MS;
    const wasConnected = link.state === "connected";
    link.enter("draining");
    this.#log.info("stopping: no new tasks", { running: holdings.running, drain_timeout_ms: drainMs });
    holdings.takeNoMore();
    this.#drain.abort();
    await within(cancelAt, (signal) => holdings.finished(signal));
    holdings.cancelAll("the worker's drain time is over");
    await within(cancelAt + CANCELLED_MS, (signal) => holdings.finished(signal));
    holdings.releaseAll();
    // The connection goes on meanwhile and delivers. Where there is none, the drain time is all that it gets to come back.
    const deliverUntil = wasConnected ? cancelAt + CANCELLED_MS + DELIVERY_MS : cancelAt;
    await within(deliverUntil, (signal) => holdings.reported(signal));
    for (const message of holdings.unreported()) {
      this.#log.warn("a task is not reported; the server will hand it out again", taskFields(message));
    }
    return end;
  }

  #hookSignals(options: RunOptions): () => void {
    const stop = () => {
      // A second signal does what it does by default: it ends the process at once.
      unhook();
      this.stop();
    };
    const unhook = () => {
      options.signal?.removeEventListener("abort", stop);
      process.off("SIGTERM", stop);
      process.off("SIGINT", stop);
    };
    if (options.signal?.aborted === true) {
      this.stop();
    }
    options.signal?.addEventListener("abort", stop, { once: true });
    if (options.handleSignals !== false) {
      process.on("SIGTERM", stop);
      process.on("SIGINT", stop);
    }
    return unhook;
  }

  #add(task: AnyTask): void {
    if (this.#link !== undefined) {
      throw new OrbitError("tasks are added before the worker runs");
    }
    if (this.#tasks.has(task.contract)) {
      throw new OrbitError(`contract ${task.contract} has a handler already`);
    }
    this.#tasks.set(task.contract, task);
  }
}

/** Waits for the abort of a signal. */
function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
    } else {
      signal.addEventListener("abort", () => {
        resolve();
      }, { once: true });
    }
  });
}

/** Lets something go on until a point in time by `performance.now()`. */
async function within(end: number, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const controller = new AbortController();
  const timer = setTimeout(() => {
    controller.abort();
  }, Math.max(0, end - performance.now()));
  try {
    await work(controller.signal);
  } finally {
    clearTimeout(timer);
  }
}
