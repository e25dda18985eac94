import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { context as otelContext, propagation, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { Client, InvalidArgumentError, loggerOf, NotFoundError, serveHealth, Worker, type State } from "@orbit/sdk";
import { taskMetrics, workerMetrics } from "@orbit/sdk/metrics";
import { callTracing, tracing } from "@orbit/sdk/otel";
import { OrbitServer } from "@orbit/sdk/testing";
import { Registry } from "prom-client";

const DEFINITION = `
name: double
version: 1.0.0
tasks: {double@1: {}}
steps:
  - id: double
    task: double@1
    input: \${ input }
result: \${ steps.double.output }
`;

let server: OrbitServer;
let client: Client;

before(async () => {
  server = await OrbitServer.start();
  client = server.client();
  await client.deploy(DEFINITION);
});

after(async () => {
  client.close();
  await server.stop();
});

test("a task goes from the caller to the handler and back, every digit kept", async () => {
  const worker = new Worker(client);
  worker.task("double@1", (n: bigint) => n * 2n);
  const running = worker.run({ handleSignals: false });
  const execution = await client.start("double", 9007199254740993n);
  assert.equal(await execution.result({ timeoutMs: 20_000 }), 18014398509481986n);
  worker.stop();
  await running;
  assert.equal(worker.status().state, "stopped");
});

test("a worker goes through its states, once each, and tells a probe how it does", async () => {
  const states: State[] = [];
  const changes = new EventEmitter();
  const worker = new Worker(client, {
    onState: (state) => {
      states.push(state);
      changes.emit(state);
    },
  });
  worker.task("double@1", (n: number) => n);
  await using health = { ...(await serveHealth(worker, { host: "127.0.0.1" })), [Symbol.asyncDispose]: () => health.close() };
  const probe = async () => (await fetch(`http://127.0.0.1:${String(health.port)}/healthz`)).status;
  assert.equal(await probe(), 503);
  const stop = new AbortController();
  const running = worker.run({ signal: stop.signal, handleSignals: false });
  await once(changes, "connected");
  assert.equal(await probe(), 200);
  stop.abort();
  await running;
  assert.equal(await probe(), 503);
  assert.deepEqual(states, ["connecting", "connected", "draining", "stopped"]);
});

test("a worker that the server refuses as such says so", async () => {
  const worker = new Worker(client);
  worker.task("no version", () => null);
  await assert.rejects(worker.run({ handleSignals: false }), InvalidArgumentError);
});

test("a mistake in a worker's making is told at once", async () => {
  assert.throws(() => new Worker(client, { slots: 0 }), RangeError);
  const worker = new Worker(client);
  await assert.rejects(worker.run(), /nothing to do/);
  worker.task("double@1", () => null);
  assert.throws(() => worker.task("double@1", () => null), /has a handler already/);
});

test("a handler that blocks the thread is told by its contract", async () => {
  const records: string[] = [];
  const logger = loggerOf((level, message, fields) => {
    records.push(`${level} ${message.split(":")[0] ?? ""} ${String(fields.contracts)}`);
  });
  await client.deploy("name: blocks\nversion: 1.0.0\ntasks: {blocks@1: {}}\nsteps: [{id: s, task: blocks@1}]\n");
  const worker = new Worker(client, { logger });
  worker.task("blocks@1", async () => {
    await sleep(300);
    const end = performance.now() + 1_600;
    while (performance.now() < end);
    await sleep(300);
  });
  const running = worker.run({ handleSignals: false });
  await (await client.start("blocks")).wait({ timeoutMs: 20_000 });
  worker.stop();
  await running;
  assert.ok(records.includes("warn the thread was blocked blocks@1"), records.join("\n"));
});

test("a call of what is not there has its class, its code and its reason", async () => {
  await assert.rejects(client.handle("nothing").describe(), (error: unknown) => {
    assert.ok(error instanceof NotFoundError);
    assert.deepEqual([error.code, error.reason, error.metadata], ["NOT_FOUND", "EXECUTION_NOT_FOUND", { id: "nothing" }]);
    return true;
  });
});

test("lists go through all pages", async () => {
  for (let index = 0; index < 5; index++) {
    await client.start("double", index, { id: `page-${String(index)}`, labels: { paged: "yes" } });
  }
  const ids: string[] = [];
  for await (const { id } of client.list({ filter: "labels.paged = yes", pageSize: 2 })) {
    ids.push(id);
  }
  assert.deepEqual(ids, ["page-4", "page-3", "page-2", "page-1", "page-0"]);
  assert.ok(((await client.count()).RUNNING ?? 0) >= 5);
});

test("metrics and traces follow a task from its start on", async () => {
  otelContext.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  trace.setGlobalTracerProvider(provider);
  const registry = new Registry();
  const traced = server.client({ interceptors: [callTracing()] });
  const worker = new Worker(client, { queues: ["traced"], middleware: [tracing(), taskMetrics({ registry })] });
  workerMetrics(worker, { registry });
  let active: string | undefined;
  worker.task("traced@1", () => {
    active = trace.getActiveSpan()?.spanContext().traceId;
    return null;
  });
  await client.deploy("name: traced\nversion: 1.0.0\ntasks: {traced@1: {}}\nsteps: [{id: s, task: traced@1, queue: traced}]\n");
  const running = worker.run({ handleSignals: false });
  await (await traced.start("traced")).result({ timeoutMs: 20_000 });
  worker.stop();
  await running;
  traced.close();

  const spans = exporter.getFinishedSpans();
  const start = spans.find(({ name }) => name.endsWith("/StartExecution"));
  const task = spans.find(({ name }) => name === "task traced@1");
  assert.ok(start !== undefined && task !== undefined);
  assert.equal(task.parentSpanContext?.spanId, start.spanContext().spanId);
  assert.equal(active, start.spanContext().traceId);
  const metrics = await registry.metrics();
  assert.match(metrics, /orbit_worker_task_duration_seconds_count\{contract="traced@1",outcome="succeeded"\} 1/);
  assert.match(metrics, /orbit_worker_connected 0/);
});
