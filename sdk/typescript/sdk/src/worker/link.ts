/**
 * A worker's way to the server: registers, works over streams or polls, and connects again for ever.
 *
 * - A lost session is asked for again by `previous_session_id`.
 * - One log record and one call of the hook for each change of the state, none for a try that failed like the one before.
 * - Streams by default; polls once the server does not have streams, or three in a row ended before a word was heard; now and
 *   then one stream is tried again, which nobody notices if it fails.
 */

import { Backoff, monotonic, sleep } from "../clock.js";
import type { Connection } from "../connection.js";
import {
  InvalidArgumentError,
  orbitError,
  PermissionDeniedError,
  UnauthenticatedError,
  UnimplementedError,
  type OrbitError,
} from "../errors.js";
import type { Logger } from "../logger.js";
import { millisecondsOf } from "../time.js";
import type { Holdings } from "./holdings.js";
import { poll } from "./poll.js";
import { ConnectionLostError, WORKER_CALL_MS, type Service, type Session } from "./session.js";
import { stream } from "./stream.js";

/** How tasks come. */
export type Mode = "stream" | "poll";
/** Where a worker is in its life. */
export type State = "connecting" | "connected" | "disconnected" | "draining" | "stopped";

/** What a worker tells the server about itself. */
export interface Registration {
  readonly workerId: string;
  readonly language: string;
  readonly sdk: string;
  readonly build: string;
  readonly queues: string[];
  readonly contracts: string[];
  readonly slots: number;
  readonly messageBytesMax: bigint;
}

/** Streams in a row that may fail at once before polls take over. */
const FAILED_STREAMS_MAX = 3;
/** Longest pause between tries: a worker must be back within 30 s of its server. */
const PAUSE_MS_MAX = 10_000;

/** One worker's link to its server. */
export class Link {
  #state: State = "connecting";
  #mode: Mode | undefined;
  #next: Mode;
  #sessionId = "";
  #timeoutMs = 30_000;
  #contact: Date | undefined;
  #failedStreams = 0;
  // Whether polls stand in for streams, so that the next stream is a try.
  #standsIn = false;
  // Whether it was said that the first connection takes its time.
  #waiting = false;
  readonly #backoff = new Backoff(100, PAUSE_MS_MAX);

  constructor(
    private readonly connection: Connection,
    private readonly holdings: Holdings,
    private readonly registration: Registration,
    private readonly wanted: Mode | "auto",
    /** How long polls stand in before a stream is tried again, in milliseconds. */
    private readonly streamRetryMs: number,
    private readonly log: Logger,
    private readonly onState: (state: State, mode: Mode | undefined) => void,
  ) {
    this.#next = wanted === "poll" ? "poll" : "stream";
  }

  get state(): State {
    return this.#state;
  }
  /** How tasks come, or came last; `undefined` before the first connection. */
  get mode(): Mode | undefined {
    return this.#mode;
  }
  get sessionId(): string {
    return this.#sessionId;
  }
  /** When the server last answered. */
  get lastContact(): Date | undefined {
    return this.#contact;
  }
  /** Milliseconds of silence after which the session is lost. */
  get timeoutMs(): number {
    return this.#timeoutMs;
  }

  /**
   * Works until the signal ends it.
   *
   * @throws OrbitError only if the very first registration is refused as such: a wrong contract, credentials that are not
   * enough.
   */
  async run(signal: AbortSignal): Promise<void> {
    this.#tell("connecting");
    while (!signal.aborted) {
      try {
        const session = await this.#register(signal);
        await this.#serve(session, signal);
      } catch (thrown) {
        const error = orbitError(thrown);
        if (isAborted(signal)) {
          return;
        }
        if (this.#sessionId === "" && isFinal(error)) {
          throw error;
        }
        this.#disconnected(error);
      }
      await sleep(this.#backoff.next(), signal);
    }
  }

  /** Ends the session, so that its tasks are handed out again at once. An error is only logged. */
  async unregister(timeoutMs: number): Promise<void> {
    if (this.#sessionId === "") {
      return;
    }
    try {
      await this.connection.worker.unregisterWorker({ sessionId: this.#sessionId }, { timeoutMs });
    } catch (thrown) {
      // The server finds out by the session's timeout.
      this.log.warn("could not unregister", { error: orbitError(thrown).message });
    }
  }

  /** The worker begins to stop, or has stopped: connections come and go unsaid from now on. */
  enter(state: "draining" | "stopped"): void {
    this.#tell(state);
  }

  async #register(signal: AbortSignal): Promise<Session> {
    const response = await this.connection.worker.registerWorker(
      { ...this.registration, previousSessionId: this.#sessionId },
      { timeoutMs: WORKER_CALL_MS, signal },
    );
    for (const warning of response.warnings) {
      this.log.warn("the server warns", { warning });
    }
    this.#sessionId = response.sessionId;
    this.#contact = new Date();
    const timeoutMs = millisecondsOf(response.sessionTimeout) || this.#timeoutMs;
    this.#timeoutMs = timeoutMs;
    return {
      id: response.sessionId,
      heartbeatIntervalMs: millisecondsOf(response.heartbeatInterval) || timeoutMs / 3,
      timeoutMs,
    };
  }

  /** Works under one session until a connection is lost. The server ends streams in order now and then; the session stays. */
  async #serve(session: Session, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const mode = this.#next;
      let heard = false as boolean;
      const service: Service = {
        connection: this.connection,
        session,
        holdings: this.holdings,
        heard: (working) => {
          heard = true;
          this.#heard(mode, working);
        },
      };
      try {
        await (mode === "stream" ? stream(service, signal) : this.#pollForAWhile(service, signal));
        if (heard) {
          this.#failedStreams = 0;
        } else if (!isAborted(signal) && this.#afterFailure(mode, undefined)) {
          continue;
        }
      } catch (thrown) {
        const error = orbitError(thrown);
        if (!heard && this.#afterFailure(mode, error)) {
          continue;
        }
        throw error;
      }
      if (!heard) {
        await sleep(this.#backoff.next(), signal);
      }
    }
  }

  async #pollForAWhile(service: Service, signal: AbortSignal): Promise<void> {
    await poll(service, signal, this.wanted === "poll" ? Number.POSITIVE_INFINITY : monotonic() + this.streamRetryMs);
    this.#next = this.wanted === "poll" ? "poll" : "stream";
  }

  /** Judges a connection that failed before the server said a word on it; returns whether to go on at once another way. */
  #afterFailure(mode: Mode, error: OrbitError | undefined): boolean {
    if (mode !== "stream" || this.wanted !== "auto") {
      return false;
    }
    this.#failedStreams += 1;
    if (!(error instanceof UnimplementedError || this.#standsIn || this.#failedStreams >= FAILED_STREAMS_MAX)) {
      return false;
    }
    if (!this.#standsIn) {
      const why = error === undefined ? "ended without a word" : describe(error);
      this.log.warn("streams do not get through; polling instead", { address: this.connection.address, error: why });
    }
    this.#standsIn = true;
    this.#failedStreams = 0;
    this.#next = "poll";
    return true;
  }

  #heard(mode: Mode, working: boolean): void {
    this.#contact = new Date();
    this.#mode = mode;
    if (mode === "stream") {
      this.#failedStreams = 0;
      if (this.#standsIn) {
        this.#standsIn = false;
        this.log.info("streams get through again", { address: this.connection.address });
      }
    }
    if (!working) {
      return;
    }
    this.#backoff.reset();
    if (this.#state === "connecting" || this.#state === "disconnected") {
      this.log.info("connected", { address: this.connection.address, session_id: this.#sessionId, mode });
      this.#tell("connected");
    }
  }

  #disconnected(error: OrbitError): void {
    // A connection that hangs while it is being opened would keep every later try waiting for it.
    if (error instanceof ConnectionLostError || error.code === "DEADLINE_EXCEEDED") {
      this.connection.reset();
    }
    const fields = { address: this.connection.address, error: describe(error) };
    if (this.#state === "connected") {
      this.log.warn("disconnected; trying again", fields);
      this.#tell("disconnected");
    } else if (this.#state === "connecting" && !this.#waiting) {
      this.log.warn("no connection yet; trying again", fields);
      this.#waiting = true;
    } else {
      this.log.debug("no connection; trying again", fields);
    }
  }

  #tell(state: State): void {
    this.#state = state;
    this.onState(state, this.#mode);
  }
}

function isFinal(error: OrbitError): boolean {
  return (
    error instanceof InvalidArgumentError ||
    error instanceof UnauthenticatedError ||
    error instanceof PermissionDeniedError
  );
}

/** Read anew, since it changes while something is awaited. */
function isAborted(signal: AbortSignal): boolean {
  return signal.aborted;
}

function describe(error: OrbitError): string {
  return error.reason === "" ? error.message : `${error.message} (${error.reason})`;
}
