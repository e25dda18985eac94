/** Tasks and reports by plain calls, where streams do not get through. */

import { setMaxListeners } from "node:events";
import type { Report } from "@orbit/api/orbit/worker/v1/worker_service_pb.js";
import { monotonic, sleep } from "../clock.js";
import { FailedPreconditionError, InvalidArgumentError, orbitError } from "../errors.js";
import { durationOf } from "../time.js";
import { WORKER_CALL_MS, type Service } from "./session.js";

/** How long a poll waits for its first task, in milliseconds. */
const POLL_MS = 20_000;
/** Pause between polls of a server that shuts down. */
const DRAINING_MS = 1_000;

/**
 * Works by plain calls until one of them fails, or until `signal` or the time `until` (`monotonic`) ends it, after which it
 * returns. A worker that stops goes on beyond that time.
 *
 * @throws OrbitError when a call failed.
 */
export async function poll(service: Service, signal: AbortSignal, until: number): Promise<void> {
  const { connection, session, holdings, heard } = service;
  const ended = new AbortController();
  // As many reports may be on their way as there are slots.
  setMaxListeners(0, ended.signal);
  const end = () => {
    ended.abort();
  };
  signal.addEventListener("abort", end, { once: true });
  const options = { timeoutMs: WORKER_CALL_MS, signal: ended.signal };

  async function fetch(): Promise<void> {
    const enough = AbortSignal.any([ended.signal, holdings.closing]);
    while (!enough.aborted) {
      const maxTasks = Math.min(1000, await holdings.room(enough));
      if (maxTasks === 0) {
        return;
      }
      // The last poll ends in time: one that were cut off could take tasks along.
      const waitMs = Math.min(POLL_MS, until - monotonic());
      if (waitMs <= 0) {
        end();
        return;
      }
      const { tasks, draining } = await connection.worker.pollTasks(
        { sessionId: session.id, maxTasks, waitDuration: durationOf(Math.max(1, waitMs)) },
        { timeoutMs: POLL_MS + WORKER_CALL_MS, signal: enough },
      );
      holdings.accept(tasks);
      heard(!draining);
      if (draining) {
        await sleep(DRAINING_MS, enough);
      }
    }
  }

  async function beat(): Promise<void> {
    while (!ended.signal.aborted) {
      const { stop, draining } = await connection.worker.heartbeat(holdings.heartbeat(session.id), options);
      holdings.heartbeatAnswered();
      holdings.stop(stop);
      heard(!draining);
      await sleep(session.heartbeatIntervalMs, ended.signal);
    }
  }

  async function report(fail: (error: unknown) => void): Promise<void> {
    while (!ended.signal.aborted) {
      for (const report of holdings.unsent()) {
        send(service, report, options).catch(fail);
      }
      await holdings.change(session.heartbeatIntervalMs, ended.signal);
    }
  }

  try {
    await new Promise<void>((resolve, reject) => {
      const fetching = fetch().catch((error: unknown) => {
        // A worker that wants no more has ended its poll itself; reports and heartbeats go on.
        if (!holdings.closing.aborted) {
          throw error;
        }
      });
      for (const part of [fetching, beat(), report(reject)]) {
        part.then(() => {
          if (ended.signal.aborted) {
            resolve();
          }
        }, reject);
      }
    });
  } catch (error) {
    // Whatever fails after the end was cut off by it.
    if (!ended.signal.aborted) {
      throw orbitError(error);
    }
  } finally {
    signal.removeEventListener("abort", end);
    ended.abort();
    holdings.connectionLost();
  }
}

/** Sends one report as a call of its own. */
async function send(
  { connection: { worker }, holdings }: Service,
  { taskToken, kind }: Report,
  options: { timeoutMs: number; signal: AbortSignal },
): Promise<void> {
  try {
    let response;
    switch (kind.case) {
      case "complete": {
        const { $typeName: _, ...success } = kind.value;
        response = await worker.completeTask({ ...success, taskToken }, options);
        break;
      }
      case "fail": {
        const { $typeName: _, ...failure } = kind.value;
        response = await worker.failTask({ ...failure, taskToken }, options);
        break;
      }
      case "release":
      case undefined:
        response = await worker.releaseTask({ taskToken }, options);
        break;
    }
    holdings.answered(taskToken, response.outcome);
  } catch (thrown) {
    const error = orbitError(thrown);
    // What the same call would meet again, however often it is sent.
    if (!(error instanceof InvalidArgumentError || error instanceof FailedPreconditionError)) {
      throw error;
    }
    holdings.refused(taskToken, { reason: error.reason || error.code, message: error.message, retryable: false });
  }
}
