/** The calls that the in-memory Orbit answers, as a connection that the real client takes. */

import { randomUUID } from "node:crypto";
import { create, type DescMessage, type DescService, type MessageInitShape, type MessageShape } from "@bufbuild/protobuf";
import type { CallOptions, Client as RpcClient } from "@connectrpc/connect";
import { AdminService } from "@orbit/api/orbit/admin/v1/admin_service_pb.js";
import { ScheduleService } from "@orbit/api/orbit/schedule/v1/schedule_service_pb.js";
import { WorkerService } from "@orbit/api/orbit/worker/v1/worker_service_pb.js";
import type { Connection } from "../connection.js";
import {
  AlreadyExistsError,
  FailedPreconditionError,
  InvalidArgumentError,
  NotFoundError,
  UnimplementedError,
  type OrbitError,
} from "../errors.js";
import { encodePayload } from "../payload.js";
import { millisecondsOf } from "../time.js";
import { FakeExecution } from "./execution.js";
import type { FakeOrbit } from "./fake.js";

type Method = keyof (typeof AdminService)["method"];
type Request<M extends Method> = MessageShape<(typeof AdminService)["method"][M]["input"]>;
type Response<M extends Method> = MessageInitShape<(typeof AdminService)["method"][M]["output"]>;
type Unary = Exclude<Method, "watchEvents">;
type Answers = { readonly [M in Unary]?: (request: Request<M>) => Response<M> | Promise<Response<M>> };

/** Makes a connection to a fake. */
export function fakeConnection(fake: FakeOrbit): Connection {
  const answers = answersOf(fake);
  const admin: Record<string, unknown> = {};
  for (const [name, method] of Object.entries(AdminService.method)) {
    const answer = (answers as Record<string, ((request: unknown) => unknown) | undefined>)[name];
    admin[name] = async (request: object) => {
      if (answer === undefined) {
        throw new UnimplementedError(`the fake does not have ${method.name}`, { code: "UNIMPLEMENTED" });
      }
      return messageOf(method.output, await answer(messageOf(method.input, request)));
    };
  }
  admin.watchEvents = (request: { id: string; afterNumber: bigint }, options?: CallOptions) =>
    watch(fake, request, options?.signal);
  const worker = refusing(WorkerService, () => {
    const message = "the in-memory Orbit runs tasks itself; give them to `new FakeOrbit({ tasks })`";
    return new InvalidArgumentError(message, { code: "INVALID_ARGUMENT" });
  });
  const schedules = refusing(ScheduleService, () => {
    return new UnimplementedError("the fake has no schedules", { code: "UNIMPLEMENTED" });
  });
  return {
    admin: admin as RpcClient<typeof AdminService>,
    schedules,
    worker,
    address: "memory:",
    reset: () => undefined,
  };
}

/** Calls of a service that are all refused. */
function refusing<S extends DescService>(service: S, refusal: () => OrbitError): RpcClient<S> {
  const names = service.methods.map(({ localName }) => localName);
  return Object.fromEntries(names.map((name) => [name, () => Promise.reject(refusal())])) as unknown as RpcClient<S>;
}

function messageOf(schema: DescMessage, parts: unknown): unknown {
  return create(schema, parts as MessageInitShape<DescMessage>);
}

function answersOf(fake: FakeOrbit): Answers {
  // First answers by request id, as the server remembers them.
  const starts = new Map<string, FakeExecution>();
  const written = new Map<string, number>();
  const once = (requestId: string, write: () => number): number => {
    const number = written.get(requestId) ?? write();
    if (requestId !== "") {
      written.set(requestId, number);
    }
    return number;
  };
  const open = (request: { id: string; uid: string }): FakeExecution => {
    const execution = find(fake, request);
    if (execution.closed) {
      const metadata = { id: execution.id };
      const parts = { code: "FAILED_PRECONDITION", reason: "EXECUTION_CLOSED", metadata };
      throw new FailedPreconditionError(`execution ${execution.id} is closed`, parts);
    }
    return execution;
  };
  return {
    startExecution: (request) => {
      const known = starts.get(request.requestId);
      const execution = known ?? start(fake, request);
      starts.set(request.requestId, execution);
      const { id, uid, version, startTime } = execution;
      return { id, uid, version, startTime, created: execution.makers.has(request.requestId) };
    },
    getExecution: (request) => ({ execution: find(fake, request).message }),
    waitExecution: async (request) => {
      const execution = find(fake, request);
      const end = Date.now() + millisecondsOf(request.waitDuration);
      while (!execution.closed && Date.now() < end) {
        await execution.change(end - Date.now());
      }
      return { execution: execution.message };
    },
    listExecutions: ({ filter }) => {
      if (filter !== "") {
        throw new UnimplementedError("the fake lists without a filter only", { code: "UNIMPLEMENTED" });
      }
      return { executions: fake.executions.map(({ message }) => message).reverse() };
    },
    signalExecution: (request) => {
      const number = once(request.requestId, () =>
        open(request).signal(request.name, request.payload ?? encodePayload(null)),
      );
      return { eventNumber: BigInt(number) };
    },
    queryExecution: (request) => {
      const execution = find(fake, request);
      const result = execution.answers.get(request.query);
      if (result === undefined) {
        const parts = { code: "NOT_FOUND", reason: "QUERY_NOT_FOUND" };
        throw new NotFoundError(`the execution answers no query ${request.query}`, parts);
      }
      return { result, lastEventNumber: BigInt(execution.events.length) };
    },
    cancelExecution: (request) => ({
      eventNumber: BigInt(once(request.requestId, () => open(request).cancel(request.reason))),
    }),
    terminateExecution: (request) => ({
      eventNumber: BigInt(once(request.requestId, () => open(request).terminate(request.reason))),
    }),
  };
}

function start(fake: FakeOrbit, request: Request<"startExecution">): FakeExecution {
  const { id, workflow, requestId } = request;
  const input = request.input ?? encodePayload(null);
  if (!fake.has(workflow)) {
    const parts = { code: "NOT_FOUND", reason: "DEFINITION_NOT_FOUND" };
    throw new NotFoundError(`the fake has no workflow ${workflow}; give it one with \`fake.workflow\``, parts);
  }
  const existing = fake.executions.find((execution) => execution.id === id);
  if (existing !== undefined) {
    if (existing.workflow === workflow && existing.input.content.value === input.content.value) {
      return existing;
    }
    const metadata = { id, uid: existing.uid, workflow: existing.workflow };
    const parts = { code: "ALREADY_EXISTS", reason: "EXECUTION_ALREADY_EXISTS", metadata };
    throw new AlreadyExistsError(`execution ${id} exists with another workflow or input`, parts);
  }
  const made = new FakeExecution(id || randomUUID(), workflow, request.version || "1.0.0", input, request.labels);
  made.makers.add(requestId);
  fake.begin(made);
  return made;
}

function find(fake: FakeOrbit, { id, uid }: { readonly id: string; readonly uid?: string }): FakeExecution {
  const found = fake.executions.find((each) => each.id === id && (uid === undefined || uid === "" || each.uid === uid));
  if (found === undefined) {
    const parts = { code: "NOT_FOUND", reason: "EXECUTION_NOT_FOUND", metadata: { id } };
    throw new NotFoundError(`there is no execution ${id}`, parts);
  }
  return found;
}

async function* watch(fake: FakeOrbit, request: { id: string; afterNumber: bigint }, signal: AbortSignal | undefined) {
  const execution = find(fake, request);
  const aborted = new Promise<void>((resolve) => {
    signal?.addEventListener("abort", () => {
      resolve();
    }, { once: true });
  });
  for (let next = Number(request.afterNumber); signal?.aborted !== true; ) {
    const event = execution.events[next];
    if (event !== undefined) {
      next += 1;
      yield { event };
    } else if (execution.closed) {
      return;
    } else {
      await Promise.race([execution.change(), aborted]);
    }
  }
  signal.throwIfAborted();
}
