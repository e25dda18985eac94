/**
 * Helpers for tests: a real server (`OrbitServer`), an in-memory one (`FakeOrbit`), and one handler as if dispatched
 * (`runHandler`).
 *
 * @packageDocumentation
 */

export { FakeOrbit, type FakeOptions, type FakeRun, type FakeWorkflow } from "./fake.js";
export type { FakeExecution } from "./execution.js";
export { runHandler, type HandlerOutcome, type RunHandlerOptions } from "./run.js";
export { OrbitServer, type ServerOptions } from "./server.js";
