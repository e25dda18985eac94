import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { OrbitServer } from "@orbit/sdk/testing";
import ts from "typescript";

// Within the package, where `@orbit/sdk` is found as in a project that has installed it.
const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = join(root, "build/readme");
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });

/** The README's blocks of code; those with a title by their title, the others by their number. */
const blocks = new Map<string, string>();
const readme = readFileSync(join(root, "README.md"), "utf8");
for (const [, language, title, text] of readme.matchAll(/^```(\w+)(?: title="(.+)")?\n([\s\S]*?)^```/gm)) {
  if (language === "ts" || title !== undefined) {
    const name = title ?? `block-${String(blocks.size)}.mts`;
    blocks.set(name, text ?? "");
    writeFileSync(join(folder, name), text ?? "");
  }
}

/** Makes a block a program of its own; returns its path. */
function compile(name: string): string {
  const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext };
  const { outputText } = ts.transpileModule(blocks.get(name) ?? "", { compilerOptions: options });
  const file = join(folder, name.replace(/\.mts$/, ".mjs"));
  writeFileSync(file, outputText);
  return file;
}

let server: OrbitServer | undefined;
after(() => server?.stop());

test("every piece of code in the README is strictly typed", () => {
  const files = [...blocks.keys()].filter((name) => name.endsWith(".mts")).map((name) => join(folder, name));
  const program = ts.createProgram(files, {
    target: ts.ScriptTarget.ES2022,
    lib: ["lib.es2022.d.ts", "lib.esnext.disposable.d.ts"],
    module: ts.ModuleKind.NodeNext,
    types: ["node"],
    strict: true,
    noEmit: true,
    skipLibCheck: true,
  });
  const faults = ts.getPreEmitDiagnostics(program).map((fault) => ts.flattenDiagnosticMessageText(fault.messageText, "\n"));
  assert.deepEqual(faults, []);
  assert.ok(files.length >= 6);
});

test("the README's first worker and caller say hello, and the worker ends well on SIGTERM", async (t) => {
  server = await OrbitServer.start();
  await using client = server.client();
  await client.deploy(blocks.get("hello.yaml") ?? "");
  const options = { env: { ...process.env, ORBIT_ADDRESS: server.address }, cwd: folder };
  const worker = spawn(process.execPath, [compile("worker.mts")], { ...options, stdio: ["ignore", "inherit", "pipe"] });
  t.after(() => worker.kill("SIGKILL"));
  let log = "";
  worker.stderr.on("data", (chunk: Buffer) => (log += chunk.toString()));
  const caller = spawn(process.execPath, [compile("start.mts")], { ...options, stdio: ["ignore", "pipe", "inherit"] });
  let printed = "";
  caller.stdout.on("data", (chunk: Buffer) => (printed += chunk.toString()));
  assert.deepEqual(await once(caller, "exit"), [0, null]);
  assert.equal(printed, "Hello Ada\n");
  worker.kill("SIGTERM");
  assert.deepEqual(await once(worker, "exit"), [0, null]);
  assert.match(log, /INFO greeting .*execution_id=hello-1/);
  assert.match(log, /INFO stopped reported=0 released=0 unreported=0 seconds=\S+\n$/);
});

test("the README's tests pass", { timeout: 120_000 }, async () => {
  // The test runner passes its own settings on, with which another one would tell nothing.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const tests = spawn(process.execPath, ["--test", compile("hello.test.mts")], { env, cwd: root });
  let printed = "";
  tests.stdout.on("data", (chunk: Buffer) => (printed += chunk.toString()));
  const [code] = (await Promise.race([once(tests, "exit"), sleep(100_000, [undefined], { ref: false })])) as [number | undefined];
  assert.equal(code, 0, printed);
  assert.match(printed, /# pass 3/);
});
