/** Tells probes over HTTP how a worker does: 200 while it is healthy, 503 otherwise, with its status as JSON. */

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Worker } from "./worker.js";

/** Where to listen. */
export interface HealthOptions {
  /** Default 0: a free port, which the answer tells. */
  readonly port?: number;
  /** Default: every address, so that a probe from outside the container reaches it. */
  readonly host?: string;
}

/** A server that answers every path with a worker's health. */
export interface HealthServer {
  /** Where it listens. */
  readonly port: number;
  /** Stops listening. */
  close(): Promise<void>;
}

/**
 * Serves a worker's health: whether the server has answered within a session timeout. A worker that cannot reach its server is
 * not healthy, though restarting it may not help: use it to be told, and for readiness.
 */
export async function serveHealth(worker: Worker, options: HealthOptions = {}): Promise<HealthServer> {
  const server: Server = createServer((_request, response) => {
    const { lastContact, ...status } = worker.status();
    const body = JSON.stringify({ ...status, last_contact: lastContact?.toISOString() ?? null });
    response.writeHead(status.healthy ? 200 : 503, { "content-type": "application/json" }).end(`${body}\n`);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port ?? 0, options.host, resolve);
  });
  // A worker that has stopped ends its process, with or without this.
  server.unref();
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => {
          resolve();
        });
      }),
  };
}
