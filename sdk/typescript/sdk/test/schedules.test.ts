import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AlreadyExistsError, InvalidArgumentError, NotFoundError, type Client } from "@orbit/sdk";
import { OrbitServer } from "@orbit/sdk/testing";

const DEFINITION = "name: report\nversion: 1.0.0\nsteps: [{id: day, compute: '${ input.day }'}]\nresult: ${ steps.day.output }\n";
const YEAR_MS = 365 * 24 * 3_600_000;

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

test("a schedule is made, found, held, let go and deleted", async () => {
  const options = { workflow: "report", cron: "0 9 1 1 *", timezone: "Europe/Berlin", input: { day: 1 }, overlap: "allow" } as const;
  const made = await client.schedules.create("yearly", options);
  assert.deepEqual([made.id, made.state, made.workflow], ["yearly", "ACTIVE", "report"]);
  assert.ok(made.nextTime !== undefined && made.nextTime.getTime() - Date.now() < YEAR_MS + 1);
  await assert.rejects(client.schedules.create("yearly", { ...options, cron: "0 10 1 1 *" }), AlreadyExistsError);
  const schedule = client.schedules.handle("yearly");
  assert.equal((await schedule.pause({ note: "holidays" })).state, "PAUSED");
  assert.equal((await schedule.describe()).raw.pauseNote, "holidays");
  assert.equal((await schedule.resume()).state, "ACTIVE");
  const ids: string[] = [];
  for await (const { id } of client.schedules.list({ workflow: "report" })) {
    ids.push(id);
  }
  assert.deepEqual(ids, ["yearly"]);
  await schedule.delete();
  await assert.rejects(schedule.describe(), NotFoundError);
});

test("a trigger starts an execution at once, which its slots tell", async () => {
  await client.schedules.create("by-hand", { workflow: "report", everyMs: YEAR_MS, input: { day: 7 } });
  const schedule = client.schedules.handle("by-hand");
  const slot = await schedule.trigger();
  assert.deepEqual([slot.kind, slot.outcome], ["TRIGGER", "STARTED"]);
  assert.ok(slot.executionId !== undefined);
  assert.equal(await client.handle(slot.executionId).result({ timeoutMs: 20_000 }), 7);
  for await (const { executionId } of schedule.slots()) {
    assert.equal(executionId, slot.executionId);
  }
});

test("times are looked at before they are taken, and wrong ones are refused by their field", async () => {
  const times = await client.schedules.preview({ cron: "0 9 * * *", timezone: "UTC" }, { count: 3 });
  assert.deepEqual(times.slots.map(({ nominalTime }) => nominalTime?.getUTCHours()), [9, 9, 9]);
  await assert.rejects(client.schedules.preview({ cron: "61 * * * *", timezone: "UTC" }), InvalidArgumentError);
});
