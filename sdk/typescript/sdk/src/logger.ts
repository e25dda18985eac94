/** Where the SDK and the handlers' task loggers write. */

/** What belongs to a record beside its message. */
export type LogFields = Readonly<Record<string, unknown>>;

/** How grave a record is. */
export type LogLevel = "debug" | "info" | "warn" | "error";

/** Takes records. `console` is one; for others (pino, winston) three lines make one. */
export type Logger = Readonly<Record<LogLevel, (message: string, fields?: LogFields) => void>>;

const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];

/** Makes a logger of one function. */
export function loggerOf(write: (level: LogLevel, message: string, fields: LogFields) => void): Logger {
  const at = (level: LogLevel) => (message: string, fields: LogFields = {}) => {
    write(level, message, fields);
  };
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}

/** Writes lines for people to stderr, from `lowest` on (default `info`): `2026-01-31T12:00:00.000Z INFO connected address=…`. */
export function stderrLogger(lowest: LogLevel = "info"): Logger {
  return loggerOf((level, message, fields) => {
    if (LEVELS.indexOf(level) < LEVELS.indexOf(lowest)) {
      return;
    }
    const pairs = Object.entries(fields).map(([key, value]) => ` ${key}=${printed(value)}`);
    process.stderr.write(`${new Date().toISOString()} ${level.toUpperCase()} ${message}${pairs.join("")}\n`);
  });
}

/** Gives every record of a logger some more fields; a record's own win. */
export function withFields(logger: Logger, fields: LogFields): Logger {
  return loggerOf((level, message, own) => {
    logger[level](message, { ...fields, ...own });
  });
}

function printed(value: unknown): string {
  if (typeof value === "string") {
    return /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
  }
  if (value instanceof Error) {
    return JSON.stringify(value.stack ?? value.message);
  }
  return value === undefined || typeof value === "bigint" ? String(value) : JSON.stringify(value);
}
