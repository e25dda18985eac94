/** The way to a server for callers: deploy, start, look, list. Also what workers take their connection from. */

import { randomUUID } from "node:crypto";
import type { Client as RpcClient, Interceptor } from "@connectrpc/connect";
import {
  IdReusePolicy,
  type AdminService,
  type DefinitionFault,
  type DefinitionSummary,
  type GetDefinitionResponse,
  type GetServerInfoResponse,
  type Worker as WorkerMessage,
} from "@orbit/api/orbit/admin/v1/admin_service_pb.js";
import { Batches } from "./batches.js";
import { call, type CallLimits } from "./call.js";
import { resolveConfig, type ConnectionOptions } from "./config.js";
import { openConnection, type Connection } from "./connection.js";
import { stateName, summary, type ExecutionState, type ExecutionSummary } from "./execution.js";
import { ExecutionHandle, StartedExecution, type WriteOptions } from "./handle.js";
import { stderrLogger, type Logger } from "./logger.js";
import { encodePayload } from "./payload.js";
import { Schedules } from "./schedules.js";
import { validate } from "./schema.js";
import { dateOf, durationOf } from "./time.js";
import type { Workflow } from "./workflow.js";

/** How a client finds its server. Every field has a default, see `ConnectionOptions`. */
export interface ClientOptions extends ConnectionOptions {
  /** Where the SDK writes. Default: lines on stderr, from level info on. */
  readonly logger?: Logger;
  /** Stand around every call, the first one outermost. */
  readonly interceptors?: readonly Interceptor[];
}

/** What may be done if another execution has the id: nothing, take the place of a closed one, terminate an open one. */
export type IdReuse = "reject" | "allow_when_closed" | "terminate_running";

const ID_REUSE: Record<IdReuse, IdReusePolicy> = {
  reject: IdReusePolicy.REJECT,
  allow_when_closed: IdReusePolicy.ALLOW_WHEN_CLOSED,
  terminate_running: IdReusePolicy.TERMINATE_RUNNING,
};

/** How an execution is started. */
export interface StartOptions extends WriteOptions {
  /** Id: 1 to 128 of `A-Z a-z 0-9 . _ : @ + ~ -`, the first alphanumeric. Default: the server makes one. */
  readonly id?: string | undefined;
  /** Version of the definition. Default: the highest. */
  readonly version?: string | undefined;
  /** Added to the definition's labels; these win. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Pause before the first step begins, in milliseconds. Default: none. */
  readonly startDelayMs?: number | undefined;
  /** Default `reject`. */
  readonly idReuse?: IdReuse | undefined;
  /** Signal that comes with the start, in one commit; an open execution of the id gets it instead. */
  readonly signalWith?: { readonly name: string; readonly payload?: unknown } | undefined;
}

/** Which executions to list. */
export interface ListOptions extends CallLimits {
  /** As in `state = RUNNING AND workflow = "order" AND labels.tenant = "a"`. Default: all. */
  readonly filter?: string | undefined;
  /** Entries a call, at most 1,000. Default 50. The iterator goes through all pages. */
  readonly pageSize?: number | undefined;
}

/** How definitions are deployed. */
export interface DeployOptions extends CallLimits {
  /** Whether only to check: nothing is stored. Default false. */
  readonly validateOnly?: boolean | undefined;
}

/** What became of a definition. */
export interface Deployment {
  readonly name: string;
  /** Version of the definition. */
  readonly version: string;
  /** SHA-256 of the meaning, lower-case hex. */
  readonly hash: string;
  /** Whether this call stored it; false if it was there. */
  readonly created: boolean;
  /** What is allowed but looks like a mistake. */
  readonly warnings: readonly DefinitionFault[];
}

/** A client. It connects with its first call, and again whenever the connection broke. */
export class Client {
  /** Origin of the server, as in `http://localhost:7070`. */
  readonly address: string;
  /** Where the SDK writes. */
  readonly logger: Logger;
  /** Makes schedules and finds them. */
  readonly schedules: Schedules;
  /** Acts on many executions at once. */
  readonly batches: Batches;
  /** Opens another connection to the same server. */
  readonly openConnection: () => Connection;
  readonly #connection: Connection;

  /**
   * Finds the server's address and credentials; makes no call.
   *
   * @throws ConfigError if they do not make sense.
   */
  constructor(options: ClientOptions & { readonly connection?: () => Connection } = {}) {
    this.logger = options.logger ?? stderrLogger();
    if (options.connection === undefined) {
      const config = resolveConfig(options);
      this.openConnection = () => openConnection(config, options.interceptors);
    } else {
      this.openConnection = options.connection;
    }
    this.#connection = this.openConnection();
    this.address = this.#connection.address;
    this.schedules = new Schedules(this.#connection);
    this.batches = new Batches(this.#connection);
  }

  /** The generated calls themselves, for what this class does not have. Their errors are `ConnectError`. */
  get admin(): RpcClient<typeof AdminService> {
    return this.#connection.admin;
  }

  /** Starts an execution, durably. The same id, workflow and input again gives the same execution. */
  async start<Input = unknown, Output = unknown>(
    workflow: string | Workflow<Input, Output>,
    input?: Input,
    options: StartOptions = {},
  ): Promise<StartedExecution<Output>> {
    const named = typeof workflow === "string" ? { name: workflow, version: undefined, input: undefined } : workflow;
    if (named.input !== undefined) {
      await validate(named.input, input);
    }
    const request = {
      workflow: named.name,
      version: options.version ?? named.version ?? "",
      id: options.id ?? "",
      labels: { ...options.labels },
      requestId: options.requestId ?? randomUUID(),
      idReusePolicy: options.idReuse === undefined ? IdReusePolicy.UNSPECIFIED : ID_REUSE[options.idReuse],
      ...(input !== undefined && { input: encodePayload(input) }),
      ...(options.startDelayMs !== undefined && { startDelay: durationOf(options.startDelayMs) }),
      ...(options.signalWith && {
        signal: { name: options.signalWith.name, payload: encodePayload(options.signalWith.payload) },
      }),
    };
    const { id, uid, version, created, startTime } = await call(
      (each) => this.admin.startExecution(request, each),
      options,
    );
    const output = typeof workflow === "string" ? undefined : workflow.output;
    return new StartedExecution<Output>(this.#connection, id, uid, output, version, created, dateOf(startTime));
  }

  /** Names an execution that is there; makes no call. With a uid only that one is meant. */
  handle<Output = unknown>(id: string, options: { readonly uid?: string | undefined } = {}): ExecutionHandle<Output> {
    return new ExecutionHandle<Output>(this.#connection, id, options.uid);
  }

  /** Goes through executions, the newest first, page by page as far as the caller goes. */
  async *list(options: ListOptions = {}): AsyncGenerator<ExecutionSummary, void, undefined> {
    const query = { filter: options.filter ?? "", pageSize: options.pageSize ?? 0 };
    let pageToken = "";
    do {
      const request = { ...query, pageToken };
      const page = await call((each) => this.admin.listExecutions(request, each), options);
      yield* page.executions.map(summary);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Counts executions by state; states that no execution is in are left out. */
  async count(limits: CallLimits = {}): Promise<Partial<Record<ExecutionState, number>>> {
    const { counts } = await call((options) => this.admin.countExecutions({}, options), limits);
    return Object.fromEntries(counts.map(({ state, count }) => [stateName(state), Number(count)]));
  }

  /**
   * Checks a definition, the text of a YAML or JSON file, and stores it; the same again changes nothing.
   *
   * @throws InvalidArgumentError with every fault in `violations`; AlreadyExistsError if the version has other content.
   */
  async deploy(
    source: string,
    options: DeployOptions & { readonly fileName?: string | undefined } = {},
  ): Promise<Deployment> {
    const request = {
      content: { case: "source" as const, value: source },
      fileName: options.fileName ?? "",
      validateOnly: options.validateOnly ?? false,
    };
    return call((each) => this.admin.deployDefinition(request, each), options);
  }

  /** Checks definitions that refer to each other and stores all of them, or none. */
  async deployAll(
    files: readonly { readonly source: string; readonly fileName?: string | undefined }[],
    options: DeployOptions = {},
  ): Promise<readonly Deployment[]> {
    const request = {
      validateOnly: options.validateOnly ?? false,
      files: files.map(({ source, fileName }) => ({
        content: { case: "source" as const, value: source },
        fileName: fileName ?? "",
      })),
    };
    const { definitions } = await call((each) => this.admin.deployDefinitions(request, each), options);
    return definitions;
  }

  /**
   * Reads a definition: parsed, and as the text that was deployed. Without a version it is the highest, a pre-release only if
   * there is nothing else.
   *
   * @throws NotFoundError
   */
  async definition(name: string, options: CallLimits & { readonly version?: string | undefined } = {}): Promise<GetDefinitionResponse> {
    const request = { name, version: options.version ?? "" };
    return call((each) => this.admin.getDefinition(request, each), options);
  }

  /** Goes through the deployed definitions by name, each name's versions from the highest down; of one workflow if it is named. */
  async *definitions(
    options: CallLimits & { readonly name?: string | undefined; readonly pageSize?: number | undefined } = {},
  ): AsyncGenerator<DefinitionSummary, void, undefined> {
    let pageToken = "";
    do {
      const request = { name: options.name ?? "", pageSize: options.pageSize ?? 0, pageToken };
      const page = await call((each) => this.admin.listDefinitions(request, each), options);
      yield* page.definitions;
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Goes through the sessions of workers. */
  async *workers(limits: CallLimits = {}): AsyncGenerator<WorkerMessage, void, undefined> {
    let pageToken = "";
    do {
      const request = { pageToken };
      const page = await call((each) => this.admin.listWorkers(request, each), limits);
      yield* page.workers;
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Tells the server's version, limits and capabilities. */
  async serverInfo(limits: CallLimits = {}): Promise<GetServerInfoResponse> {
    return call((options) => this.admin.getServerInfo({}, options), limits);
  }

  /** Closes the connection; calls that are under way fail. A later call would open it again. */
  close(): void {
    this.#connection.reset();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }
}
