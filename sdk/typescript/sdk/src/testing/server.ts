/** A real server for tests: the program itself, on a free port, with an empty database. */

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, mkdtempSync } from "node:fs";
import { rm } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { Client, type ClientOptions } from "../client.js";
import { OrbitError } from "../errors.js";
import { loggerOf } from "../logger.js";

/** How a server is started. */
export interface ServerOptions {
  /** The program. Default: `ORBIT_BINARY`, then `orbit` on the path, then `target/release` or `target/debug` of a checkout. */
  readonly binary?: string;
  /** Further arguments of `orbit server`, as in `["--session-timeout", "2s"]`. */
  readonly args?: readonly string[];
  /** Longest time until it answers, in milliseconds. Default 30,000. */
  readonly startTimeoutMs?: number;
}

/** How long a server gets to stop in order before it is killed, in milliseconds. */
const STOP_MS = 10_000;
/** How much of the log is kept for the message of a server that does not start. */
const LOG_CHARACTERS = 8_192;

/** A running server. `await using server = await OrbitServer.start()` stops it at the end of the block. */
export class OrbitServer {
  #process: ChildProcess | undefined;
  #log = "";

  private constructor(
    private readonly binary: string,
    private readonly folder: string,
    private readonly options: ServerOptions,
    /** Port on this machine; the same after a restart. */
    readonly port: number,
  ) {}

  /**
   * Starts a server and waits until it answers.
   *
   * @throws OrbitError if there is no program, or it does not start; the message has the end of its log.
   */
  static async start(options: ServerOptions = {}): Promise<OrbitServer> {
    const binary = findBinary(options.binary);
    const folder = mkdtempSync(join(tmpdir(), "orbit-test-"));
    const server = new OrbitServer(binary, folder, options, await freePort());
    await server.resume();
    return server;
  }

  /** Origin of the server. */
  get address(): string {
    return `http://127.0.0.1:${String(this.port)}`;
  }

  /** What the server has logged, its newest part. */
  get log(): string {
    return this.#log;
  }

  /** Process id; `undefined` while it does not run. */
  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** A client of this server, whatever the environment says; it keeps quiet unless it is given a logger. */
  client(options: ClientOptions = {}): Client {
    const quiet = loggerOf(() => undefined);
    return new Client({ logger: quiet, ...options, address: this.address });
  }

  /** Stops the server, keeps its database: by SIGTERM, or at once with SIGKILL. */
  async halt(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    const process = this.#process;
    this.#process = undefined;
    if (process?.exitCode !== null || process.signalCode !== null) {
      return;
    }
    const exit = once(process, "exit");
    process.kill(signal);
    const timer = setTimeout(() => process.kill("SIGKILL"), STOP_MS);
    await exit;
    clearTimeout(timer);
  }

  /** Starts it again on the same port, with the same database. */
  async resume(): Promise<void> {
    const listen = `127.0.0.1:${String(this.port)}`;
    const args = ["server", "--db", join(this.folder, "orbit.db"), "--listen", listen, ...(this.options.args ?? [])];
    const process = spawn(this.binary, args, { stdio: ["ignore", "pipe", "pipe"] });
    this.#process = process;
    for (const output of [process.stdout, process.stderr]) {
      output.on("data", (chunk: Buffer) => {
        this.#log = (this.#log + chunk.toString()).slice(-LOG_CHARACTERS);
      });
    }
    let failure: string | undefined;
    process.once("error", (error) => (failure = error.message));
    process.once("exit", (code) => (failure = `it ended with ${String(code)}`));
    const end = Date.now() + (this.options.startTimeoutMs ?? 30_000);
    while (!(await isReady(this.address))) {
      if (failure !== undefined || Date.now() > end) {
        await this.halt("SIGKILL");
        throw new OrbitError(`${this.binary} did not start: ${failure ?? "it does not answer"}\n${this.#log}`);
      }
      await new Promise((next) => setTimeout(next, 20));
    }
  }

  /** Stops the server and removes its database. */
  async stop(): Promise<void> {
    await this.halt();
    await rm(this.folder, { recursive: true, force: true });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

function findBinary(named: string | undefined): string {
  const chosen = named ?? process.env.ORBIT_BINARY;
  if (chosen !== undefined && chosen !== "") {
    return chosen;
  }
  const places = (process.env.PATH ?? "").split(delimiter).map((folder) => join(folder, "orbit"));
  for (let folder = process.cwd(); ; folder = dirname(folder)) {
    places.push(join(folder, "target/release/orbit"), join(folder, "target/debug/orbit"));
    if (folder === dirname(folder)) {
      break;
    }
  }
  const found = places.find(isProgram);
  if (found === undefined) {
    throw new OrbitError("there is no orbit program; name it with ORBIT_BINARY or put it on the path");
  }
  return resolve(found);
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, "close");
  return port;
}

async function isReady(address: string): Promise<boolean> {
  try {
    const response = await fetch(`${address}/readyz`, { signal: AbortSignal.timeout(1_000) });
    await response.arrayBuffer();
    return response.ok;
  } catch {
    return false;
  }
}
