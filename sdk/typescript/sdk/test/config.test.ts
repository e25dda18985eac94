import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ConfigError, resolveConfig } from "@orbit/sdk";

const folder = mkdtempSync(join(tmpdir(), "orbit-config-"));
const file = join(folder, "config.toml");
writeFileSync(file, '[profile.default]\naddress = "http://127.0.0.1:1"\n\n[profile.prod]\naddress = "https://orbit.example"\napi_key = "k"\n');

test("without anything the server is on this machine", () => {
  assert.deepEqual(resolveConfig({}, { HOME: folder }), { address: "http://localhost:7070", apiKey: undefined, tls: undefined });
});

test("an argument wins over the environment, which wins over the profile, which wins over the default", () => {
  const environment = { ORBIT_CONFIG: file };
  assert.equal(resolveConfig({}, environment).address, "http://127.0.0.1:1");
  assert.equal(resolveConfig({}, { ...environment, ORBIT_ADDRESS: "127.0.0.1:2" }).address, "http://127.0.0.1:2");
  assert.equal(resolveConfig({ address: "127.0.0.1:3" }, { ...environment, ORBIT_ADDRESS: "127.0.0.1:2" }).address, "http://127.0.0.1:3");
  assert.equal(resolveConfig({}, { ...environment, ORBIT_PROFILE: "prod" }).address, "https://orbit.example");
  assert.equal(resolveConfig({ profile: "prod" }, environment).apiKey, "k");
});

test("what the command line reads is read as well, after what is the SDK's own", () => {
  assert.equal(resolveConfig({}, { HOME: folder, ORBIT_SERVER: "127.0.0.1:4" }).address, "http://127.0.0.1:4");
  assert.equal(resolveConfig({}, { HOME: folder, ORBIT_SERVER: "a:4", ORBIT_ADDRESS: "b:5" }).address, "http://b:5");
});

test("a host alone means the usual port, and a scheme its own", () => {
  for (const [given, address] of [
    ["orbit.internal", "http://orbit.internal:7070"],
    ["orbit.internal:80", "http://orbit.internal"],
    ["http://orbit.internal:7070/", "http://orbit.internal:7070"],
    ["https://orbit.example", "https://orbit.example"],
    ["[::1]:7071", "http://[::1]:7071"],
  ] as const) {
    assert.equal(resolveConfig({ address: given }, { HOME: folder }).address, address, given);
  }
});

test("what is no address is refused", () => {
  for (const address of ["", " ", "ftp://a:1", "http://a:99999", "http://a/path", "http://user@a", "a b"]) {
    assert.throws(() => resolveConfig({ address }, { HOME: folder }), ConfigError, address);
  }
});

test("a key never travels in clear text to another machine", () => {
  const environment = { HOME: folder, ORBIT_API_KEY: "secret" };
  assert.throws(() => resolveConfig({ address: "http://orbit.internal:7070" }, environment), /clear text/);
  for (const address of ["http://localhost:7070", "http://127.0.0.9:7070", "http://[::1]:7070", "https://orbit.internal"]) {
    assert.equal(resolveConfig({ address }, environment).apiKey, "secret", address);
  }
});

test("a profile, a file or half a certificate that is not there is told by name", () => {
  assert.throws(() => resolveConfig({ profile: "none" }, { ORBIT_CONFIG: file }), /no \[profile\.none\]/);
  assert.throws(() => resolveConfig({}, { ORBIT_CONFIG: join(folder, "nothing.toml") }), /nothing\.toml/);
  const tls = { HOME: folder, ORBIT_ADDRESS: "https://a" };
  assert.throws(() => resolveConfig({ tlsCa: join(folder, "ca.pem") }, tls), /ca\.pem/);
  assert.throws(() => resolveConfig({ tlsCert: file }, tls), /needs its key/);
});
