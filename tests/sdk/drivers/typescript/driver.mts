/** Does what the suite tells, over stdin and stdout, with nothing but the public SDK: see ../../README.md. */

import { createInterface } from "node:readline";
import {
  Client,
  loggerOf,
  parseJson,
  printJson,
  SDK_VERSION,
  Worker,
  type IdReuse,
  type LogFields,
  type Mode,
} from "@orbit/sdk";
import { openGate, taskOf, telling } from "./handlers.mjs";
import { batchOps, scheduleOps } from "./operator.mjs";
import { errorFields, milliseconds, number, optional, tell, text, type Fields, type Operation } from "./lines.mjs";

/** A command that the driver does not know. */
class UnknownOp extends Error {
  override readonly name = "UnknownOp";
}

const logger = loggerOf((level, message, fields) => {
  if (level !== "debug") {
    tell({ event: "log", level: level === "warn" ? "warning" : level, message, fields: texts(fields) });
  }
});

let made: Client | undefined;
let worker: { readonly it: Worker; readonly run: Promise<void> } | undefined;

const client = () => (made ??= new Client({ logger }));
const handle = (args: Fields) => client().handle(text(args.id), { uid: optional(args, "uid", text) });
const limits = (args: Fields) => ({ timeoutMs: optional(args, "timeout_seconds", milliseconds) });

const OPS: Readonly<Record<string, Operation>> = {
  "client.deploy": async (args) => {
    const { name, version, hash, created } = await client().deploy(text(args.source), {
      fileName: optional(args, "file_name", text),
      validateOnly: args.validate_only === true,
    });
    return { name, version, hash, created };
  },

  "client.start": async (args) => {
    const input = optional(args, "input_json", (value) => parseJson(text(value)) ?? null);
    const { id, uid, version, created } = await client().start(text(args.workflow), input, {
      ...limits(args),
      version: optional(args, "version", text),
      id: optional(args, "id", text),
      labels: optional(args, "labels", (value) => value as Record<string, string>),
      requestId: optional(args, "request_id", text),
      startDelayMs: optional(args, "start_delay_seconds", milliseconds),
      idReuse: optional(args, "id_reuse_policy", (value) => value as IdReuse),
    });
    return { id, uid, version, created };
  },

  "client.result": async (args) => ({ output_json: printJson(await handle(args).result(limits(args))) }),

  "client.wait": async (args) => ({ state: (await handle(args).wait(limits(args))).state }),

  "client.describe": async (args) => {
    const { input, output, steps, ...execution } = await handle(args).describe(limits(args));
    const { id, uid, workflow, version, state, labels } = execution;
    return {
      ...{ id, uid, workflow, version, state, labels },
      input_json: json(input),
      output_json: json(output),
      steps: steps.map(({ output, step, state, attempt, delivery }) => ({
        ...{ step, state, attempt, delivery },
        output_json: json(output),
      })),
    };
  },

  "client.signal": async (args) => {
    const payload = optional(args, "payload_json", (value) => parseJson(text(value)));
    const options = { requestId: optional(args, "request_id", text) };
    return { event_number: await handle(args).signal(text(args.name), payload, options) };
  },

  "client.query": async (args) => ({ result_json: printJson(await handle(args).query(text(args.query))) }),

  "client.cancel": async (args) => {
    await handle(args).cancel({ reason: optional(args, "reason", text) });
    return {};
  },

  "client.terminate": async (args) => {
    await handle(args).terminate({ reason: optional(args, "reason", text) });
    return {};
  },

  "client.list": async (args) => {
    const limit = optional(args, "limit", number) ?? Number.POSITIVE_INFINITY;
    const ids: string[] = [];
    const options = { filter: optional(args, "filter", text), pageSize: optional(args, "page_size", number) };
    for await (const { id } of client().list(options)) {
      ids.push(id);
      if (ids.length >= limit) {
        break;
      }
    }
    return { ids };
  },

  "client.rerun": async (args) => {
    const { id, uid, version, created } = await handle(args).rerun(text(args.from_step), {
      id: optional(args, "new_id", text),
      input: optional(args, "input_json", (value) => parseJson(text(value))),
      labels: optional(args, "labels", (value) => value as Record<string, string>),
      requestId: optional(args, "request_id", text),
    });
    return { id, uid, version, created };
  },

  "client.count": async () => ({ counts: await client().count() }),

  "client.definitions": async (args) => {
    const definitions: string[] = [];
    const options = { name: optional(args, "name", text), pageSize: optional(args, "page_size", number) };
    for await (const { name, version } of client().definitions(options)) {
      definitions.push(`${name}@${version}`);
    }
    return { definitions };
  },

  "client.definition": async (args) => {
    const found = await client().definition(text(args.name), { version: optional(args, "version", text) });
    return { version: found.definition?.version, hash: found.hash, source: found.source };
  },

  ...scheduleOps(() => client().schedules),
  ...batchOps(() => client().batches),

  "client.events": async (args, command) => {
    const limit = optional(args, "limit", number) ?? Number.POSITIVE_INFINITY;
    const events: Fields[] = [];
    for await (const event of handle(args).events({ ...limits(args), after: optional(args, "after", number) })) {
      const type = event.type.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      events.push({ number: event.number, type });
      tell({ event: "execution_event", command, number: event.number, type });
      if (events.length >= limit) {
        break;
      }
    }
    return { events };
  },

  "client.connect": (args) => {
    made?.close();
    made = new Client({
      logger,
      address: optional(args, "address", text),
      apiKey: optional(args, "api_key", text),
      profile: optional(args, "profile", text),
      tlsCa: optional(args, "tls_ca", text),
    });
    return { address: made.address };
  },

  "worker.start": (args) => {
    const contracts = Object.entries(args.contracts as Record<string, string>);
    const it = new Worker(client(), {
      tasks: contracts.map(([contract, handler]) => taskOf(contract, handler)),
      queues: optional(args, "queues", (value) => value as string[]) ?? ["default"],
      slots: optional(args, "slots", number) ?? 4,
      mode: optional(args, "mode", (value) => value as Mode) ?? "auto",
      middleware: [telling],
      onState: (state, mode) => {
        tell({ event: "state", state, ...(state === "connected" && { mode }) });
      },
      ...defined("drainTimeoutMs", optional(args, "drain_seconds", milliseconds)),
      ...defined("streamRetryMs", optional(args, "stream_retry_seconds", milliseconds)),
      ...defined("workerId", optional(args, "worker_id", text)),
    });
    const run = it.run().then(
      () => null,
      (error: unknown) => errorFields(error),
    );
    worker = { it, run: run.then((error) => tell({ event: "returned", error })) };
    return {};
  },

  "worker.stop": async () => {
    const begin = performance.now();
    worker?.it.stop();
    await worker?.run;
    worker = undefined;
    return { seconds: (performance.now() - begin) / 1000 };
  },

  "worker.status": () => {
    if (worker === undefined) {
      throw new Error("there is no worker");
    }
    const { state, mode, held, lastContact, healthy } = worker.it.status();
    const silent = lastContact === undefined ? null : (Date.now() - lastContact.getTime()) / 1000;
    return { state, mode: mode ?? null, held, last_contact_seconds: silent, healthy };
  },

  "gate.open": (args) => {
    openGate(text(args.gate));
    return {};
  },
};

function defined<K extends string, V>(key: K, value: V | undefined): Partial<Record<K, V>> {
  return value === undefined ? {} : ({ [key]: value } as Record<K, V>);
}

function json(value: unknown): string | null {
  return value === undefined ? null : printJson(value);
}

function texts(fields: LogFields): Fields {
  const entries = Object.entries(fields);
  return Object.fromEntries(entries.map(([key, value]) => [key, typeof value === "string" ? value : printJson(value)]));
}

async function obey(line: string): Promise<void> {
  const { id, op, args = {} } = JSON.parse(line) as { id: number; op: string; args?: Fields };
  try {
    const work = OPS[op];
    if (work === undefined) {
      throw new UnknownOp(`there is no command ${op}`);
    }
    tell({ id, ok: await work(args, id) });
  } catch (error) {
    tell({ id, error: errorFields(error) });
  }
}

// A running worker stops by itself, on the SDK's own account; the process ends once it has.
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, () => {
    void (worker?.run ?? Promise.resolve()).then(() => process.exit(0));
  });
}

createInterface({ input: process.stdin })
  .on("line", (line) => void obey(line))
  .on("close", () => process.exit(0));

tell({ event: "ready", language: "typescript", sdk: `orbit-typescript/${SDK_VERSION}` });
