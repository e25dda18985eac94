/**
 * Which server to talk to, and as whom: arguments, then the environment, then the profile file, then the default.
 *
 * - `ORBIT_ADDRESS` (or `ORBIT_SERVER`, which the command line reads), `ORBIT_API_KEY`, `ORBIT_TLS_CA`, `ORBIT_TLS_CERT`,
 *   `ORBIT_TLS_KEY`, `ORBIT_PROFILE`.
 * - `~/.config/orbit/config.toml`, or the file that `ORBIT_CONFIG` names, with tables `[profile.NAME]`.
 * - A key is never sent in clear text to a host that is not this one.
 */

import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { parse } from "smol-toml";
import { ConfigError } from "./errors.js";

/** Where the server is and how to speak to it. Every field has a default. */
export interface ConnectionOptions {
  /** `http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT`. Default `http://localhost:7070`. */
  readonly address?: string | undefined;
  /** Sent as `authorization: Bearer …`. Default: none. */
  readonly apiKey?: string | undefined;
  /** File with the certificates (PEM) of the authorities to trust. Default: those that Node trusts. */
  readonly tlsCa?: string | undefined;
  /** File with the client's certificate (PEM), together with `tlsKey`. Default: none. */
  readonly tlsCert?: string | undefined;
  /** File with the client's key (PEM). */
  readonly tlsKey?: string | undefined;
  /** Profile to read from the profile file. Default: `default`, if the file has it. */
  readonly profile?: string | undefined;
}

/** A connection's settings, found and checked. */
export interface Config {
  /** Origin, as in `http://localhost:7070`. */
  readonly address: string;
  /** Sent with each call as a bearer token. */
  readonly apiKey: string | undefined;
  /** Contents of the files; `undefined` without TLS. */
  readonly tls: { ca?: Buffer; cert?: Buffer; key?: Buffer } | undefined;
}

const DEFAULT_ADDRESS = "http://localhost:7070";
const DEFAULT_PORT = "7070";

/**
 * Finds the settings of a connection.
 *
 * @throws ConfigError if they do not make sense, a file cannot be read, or a key would travel in clear text.
 */
export function resolveConfig(options: ConnectionOptions = {}, environment: NodeJS.ProcessEnv = process.env): Config {
  const profile = readProfile(options.profile ?? given(environment.ORBIT_PROFILE), environment);
  const find = (argument: string | undefined, key: string, ...names: string[]): string | undefined =>
    argument ?? names.map((name) => given(environment[name])).find((value) => value !== undefined) ?? profile[key];

  const apiKey = find(options.apiKey, "api_key", "ORBIT_API_KEY");
  const files = {
    ca: find(options.tlsCa, "tls_ca", "ORBIT_TLS_CA"),
    cert: find(options.tlsCert, "tls_cert", "ORBIT_TLS_CERT"),
    key: find(options.tlsKey, "tls_key", "ORBIT_TLS_KEY"),
  };
  const wantsTls = files.ca !== undefined || files.cert !== undefined || files.key !== undefined;
  const url = parseAddress(find(options.address, "address", "ORBIT_ADDRESS", "ORBIT_SERVER") ?? DEFAULT_ADDRESS, wantsTls);
  if (url.protocol === "http:") {
    if (apiKey !== undefined && !isLoopback(url.hostname)) {
      throw new ConfigError(`the API key would travel in clear text to ${url.hostname}; use https://`);
    }
    return { address: url.origin, apiKey, tls: undefined };
  }
  if ((files.cert === undefined) !== (files.key === undefined)) {
    throw new ConfigError("a client certificate needs its key, and a key its certificate");
  }
  const tls: { ca?: Buffer; cert?: Buffer; key?: Buffer } = {};
  for (const name of ["ca", "cert", "key"] as const) {
    const file = files[name];
    if (file !== undefined) {
      tls[name] = readFile(file, `the TLS file ${file}`);
    }
  }
  return { address: url.origin, apiKey, tls };
}

function parseAddress(text: string, wantsTls: boolean): URL {
  const bare = !/^[a-z]+:\/\//i.test(text);
  const address = bare ? `${wantsTls ? "https" : "http"}://${text}` : text;
  let url: URL;
  try {
    url = new URL(address);
  } catch (cause) {
    throw new ConfigError(`${JSON.stringify(text)} is no address such as http://localhost:7070`, { cause });
  }
  const isOrigin = (url.pathname === "/" || url.pathname === "") && url.search === "" && url.username === "";
  if (!isOrigin || (url.protocol !== "http:" && url.protocol !== "https:")) {
    throw new ConfigError(`${JSON.stringify(text)} is no address such as http://localhost:7070`);
  }
  // A host alone means Orbit's port; with a scheme the port is the scheme's own, as everywhere.
  if (bare && !/:\d+\/?$/.test(text)) {
    url.port = DEFAULT_PORT;
  }
  return url;
}

/** Whether a host is this machine, so that nobody else can listen. */
function isLoopback(host: string): boolean {
  return host === "localhost" || host.endsWith(".localhost") || /^127(\.\d+){3}$/.test(host) || host === "[::1]";
}

function readProfile(name: string | undefined, environment: NodeJS.ProcessEnv): Record<string, string> {
  const named = given(environment.ORBIT_CONFIG);
  const file = named ?? join(given(environment.HOME) ?? homedir(), ".config", "orbit", "config.toml");
  if (named === undefined && name === undefined && !existsSync(file)) {
    return {};
  }
  let document: unknown;
  try {
    document = parse(readFile(file, `the profile file ${file}`).toString("utf8"));
  } catch (cause) {
    throw cause instanceof ConfigError ? cause : new ConfigError(`${file} is not TOML: ${String(cause)}`, { cause });
  }
  const profile = table(table(document).profile)[name ?? "default"];
  if (profile === undefined && name !== undefined) {
    throw new ConfigError(`${file} has no [profile.${name}]`);
  }
  const texts: Record<string, string> = {};
  for (const [key, value] of Object.entries(table(profile))) {
    if (typeof value !== "string") {
      throw new ConfigError(`${key} of [profile.${name ?? "default"}] in ${file} is not a string`);
    }
    texts[key] = value;
  }
  return texts;
}

function table(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

function readFile(file: string, what: string): Buffer {
  try {
    return readFileSync(file);
  } catch (cause) {
    throw new ConfigError(`cannot read ${what}: ${String(cause)}`, { cause });
  }
}

/** A variable that is set to nothing counts as not set. */
function given(value: string | undefined): string | undefined {
  return value === "" ? undefined : value;
}
