/** One HTTP/2 connection to a server, opened with the first call and again whenever it broke. */

import { createClient, type Client, type Interceptor, type Transport } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { AdminService } from "@orbit/api/orbit/admin/v1/admin_service_pb.js";
import { ScheduleService } from "@orbit/api/orbit/schedule/v1/schedule_service_pb.js";
import { WorkerService } from "@orbit/api/orbit/worker/v1/worker_service_pb.js";
import type { Config } from "./config.js";
import { SDK } from "./version.js";

/** Larger than any answer of the server's, so that no execution is too large to look at. */
const READ_BYTES_MAX = 64 * 1024 * 1024;
// A broken path is noticed although nothing is sent: long polls die silently behind some gateways.
const PING_INTERVAL_MS = 20_000;
const PING_TIMEOUT_MS = 10_000;
// What may be under way on one stream: with Node's default of 64 KiB a large input would need many round trips.
const WINDOW_BYTES = 1024 * 1024;

/** What calls travel over. */
export interface Connection {
  /** Calls for callers and operators. */
  readonly admin: Client<typeof AdminService>;
  /** Calls for schedules. */
  readonly schedules: Client<typeof ScheduleService>;
  /** Calls for workers. */
  readonly worker: Client<typeof WorkerService>;
  /** Origin of the server. */
  readonly address: string;
  /** Drops the connection, also one that is being opened; the next call opens another. */
  reset(): void;
}

/** Makes a connection; nothing is sent before the first call. */
export function openConnection(config: Config, interceptors: readonly Interceptor[] = []): Connection {
  const manager = new Http2SessionManager(
    config.address,
    { pingIntervalMs: PING_INTERVAL_MS, pingTimeoutMs: PING_TIMEOUT_MS, pingIdleConnection: true },
    { ...config.tls, settings: { initialWindowSize: WINDOW_BYTES } },
  );
  const transport = createGrpcTransport({
    baseUrl: config.address,
    sessionManager: manager,
    readMaxBytes: READ_BYTES_MAX,
    acceptCompression: [],
    interceptors: [...interceptors, withHeaders(config.apiKey)],
  });
  return connectionOver(transport, config.address, () => {
    manager.abort();
  });
}

/** A connection over a transport that is there, for example one within the process. */
export function connectionOver(transport: Transport, address: string, reset: () => void): Connection {
  return {
    admin: createClient(AdminService, transport),
    schedules: createClient(ScheduleService, transport),
    worker: createClient(WorkerService, transport),
    address,
    reset,
  };
}

function withHeaders(apiKey: string | undefined): Interceptor {
  return (next) => (request) => {
    request.header.set("user-agent", SDK);
    if (apiKey !== undefined) {
      request.header.set("authorization", `Bearer ${apiKey}`);
    }
    return next(request);
  };
}
