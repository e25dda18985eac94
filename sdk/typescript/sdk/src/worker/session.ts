/** What a connection works with: the session that the server gave, and what it tells about itself. */

import type { Connection } from "../connection.js";
import { OrbitError } from "../errors.js";
import type { Holdings } from "./holdings.js";

/** A registration, as the server gave it. */
export interface Session {
  readonly id: string;
  /** Milliseconds from one heartbeat to the next. */
  readonly heartbeatIntervalMs: number;
  /** Milliseconds of silence after which the other side counts as lost. */
  readonly timeoutMs: number;
}

/** One connection at work: `stream` or `poll` until it ends. */
export interface Service {
  readonly connection: Connection;
  readonly session: Session;
  readonly holdings: Holdings;
  /** Called whenever the server shows that it lives; `working` is false while it shuts down. */
  readonly heard: (working: boolean) => void;
}

/** The server has been silent for longer than a session lasts. */
export class ConnectionLostError extends OrbitError {
  override readonly name = "ConnectionLostError";
}

/** Longest time for a call of a worker's, in milliseconds. Every one of them can be repeated without harm. */
export const WORKER_CALL_MS = 10_000;
