import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { ExecutionFailedError, type Client } from "@orbit/sdk";
import { OrbitServer } from "@orbit/sdk/testing";

const example = fileURLToPath(new URL("../../../../../examples/order/", import.meta.url));
// Compiled by `npm run build`, into this package, where the SDK is found.
const program = fileURLToPath(new URL("../example/worker.mjs", import.meta.url));

interface Line {
  kind: string;
  orderId: string;
  cents?: number;
}

test("the order example in TypeScript charges once, however often the bank fails, and stops in order", async (t) => {
  const books = join(mkdtempSync(join(tmpdir(), "orbit-order-")), "books.jsonl");
  await using server = await OrbitServer.start();
  await using client = server.client();
  await client.deploy(readFileSync(join(example, "order.yaml"), "utf8"));
  const args = [program, "--data", books, "--charge-failures", "2"];
  const worker = spawn(process.execPath, args, {
    env: { ...process.env, ORBIT_ADDRESS: server.address },
    stdio: ["ignore", "inherit", "ignore"],
  });
  // A test that fails must not leave it behind.
  t.after(() => worker.kill("SIGKILL"));

  const input = JSON.parse(readFileSync(join(example, "input.json"), "utf8")) as { order_id: string };
  const order = await client.start("order", input, { id: "order-1" });
  await order.signal("approved", { by: "ann" });
  const result = (await order.result({ timeoutMs: 60_000 })) as { receipt: string; tracking: string };
  assert.match(result.receipt, /^C-[0-9a-f]{12}$/);
  assert.match(result.tracking, /^[TX]-[0-9a-f]{12}$/);
  assert.equal((await order.describe()).steps.find(({ step }) => step === "charge")?.attempt, 3);

  await assert.rejects(declined(client), (error: unknown) => {
    assert.ok(error instanceof ExecutionFailedError);
    return error.failure.code === "CARD_DECLINED";
  });

  worker.kill("SIGTERM");
  assert.deepEqual(await once(worker, "exit"), [0, null]);
  const lines = readFileSync(books, "utf8").trim().split("\n").map((line) => JSON.parse(line) as Line);
  assert.equal(lines.filter(({ kind, orderId }) => kind === "charge" && orderId === input.order_id).length, 1);
});

/** An order that no card pays. */
async function declined(client: Client): Promise<unknown> {
  const dear = await client.start("order", { order_id: "dear", items: [{ sku: "gold", cents: 2_000_000_000 }] });
  await dear.signal("approved", { by: "ann" });
  return dear.result({ timeoutMs: 60_000 });
}
