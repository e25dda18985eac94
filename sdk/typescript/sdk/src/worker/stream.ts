/** The fast path: tasks, reports and heartbeats as batched frames on one stream. */

import { create } from "@bufbuild/protobuf";
import { StreamTasksRequestSchema, type StreamTasksRequest } from "@orbit/api/orbit/worker/v1/worker_service_pb.js";
import { monotonic } from "../clock.js";
import { orbitError } from "../errors.js";
import { ConnectionLostError, WORKER_CALL_MS, type Service } from "./session.js";

/**
 * Works over one stream until it ends. Returns when the server ended it in order, or `signal` did.
 *
 * @throws OrbitError when the connection was lost.
 */
export async function stream(service: Service, signal: AbortSignal): Promise<void> {
  const { connection, session, holdings, heard } = service;
  const ended = new AbortController();
  const end = () => {
    ended.abort();
  };
  signal.addEventListener("abort", end, { once: true });
  // Tasks that were asked for on this stream and have not come yet.
  let expected = 0;
  let draining = false;
  let lost: ConnectionLostError | undefined;
  let heardAt = monotonic();
  // Silence after which the other side counts as lost. A first word may take half as long at most: then something on the way
  // holds streams back, and polls take over while the session still lives.
  let patienceMs = Math.min(WORKER_CALL_MS, session.timeoutMs / 2);

  async function* frames(): AsyncGenerator<StreamTasksRequest> {
    let sessionId = session.id;
    let beatAt = 0;
    while (!ended.signal.aborted) {
      // Credits cannot be taken back, and a task that is given back would come again on them. So a worker that stops then ends
      // its side of the stream, hears the server out, and gives back over one without credits.
      if (expected > 0 && holdings.closing.aborted && holdings.givesBack()) {
        return;
      }
      const frame = create(StreamTasksRequestSchema, { sessionId, reports: holdings.unsent() });
      if (!draining) {
        frame.credits = Math.max(0, holdings.free() - expected);
        expected += frame.credits;
      }
      if (monotonic() >= beatAt) {
        frame.heartbeat = holdings.heartbeat(session.id);
        beatAt = monotonic() + session.heartbeatIntervalMs;
      }
      if (frame.reports.length > 0 || frame.credits > 0 || frame.heartbeat !== undefined) {
        yield frame;
      }
      sessionId = "";
      await holdings.change(beatAt - monotonic(), ended.signal);
    }
  }

  // Every heartbeat is answered, so silence means that the other side is gone or frozen.
  const watch = setInterval(() => {
    if (monotonic() - heardAt > patienceMs) {
      lost = new ConnectionLostError("the server does not answer heartbeats", { code: "UNAVAILABLE" });
      ended.abort(lost);
    }
  }, session.timeoutMs / 4);
  try {
    for await (const frame of connection.worker.streamTasks(frames(), { signal: ended.signal })) {
      heardAt = monotonic();
      patienceMs = session.timeoutMs;
      expected -= frame.tasks.length;
      holdings.accept(frame.tasks);
      for (const { taskToken, outcome, error } of frame.results) {
        if (error === undefined) {
          holdings.answered(taskToken, outcome);
        } else {
          holdings.refused(taskToken, error);
        }
      }
      if (frame.heartbeat !== undefined) {
        holdings.heartbeatAnswered();
        holdings.stop(frame.heartbeat.stop);
        draining ||= frame.heartbeat.draining;
      }
      draining ||= frame.draining;
      heard(!draining);
    }
  } catch (error) {
    if (!signal.aborted) {
      throw lost ?? orbitError(error);
    }
  } finally {
    clearInterval(watch);
    signal.removeEventListener("abort", end);
    ended.abort();
    holdings.connectionLost();
  }
}
