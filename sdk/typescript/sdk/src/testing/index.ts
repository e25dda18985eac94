/**
 * Helpers for tests: a real server (`OrbitServer`), an in-memory one (`FakeOrbit`), and one handler as if dispatched
 * (`runHandler`).
 *
 * @packageDocumentation
 */

export { OrbitServer, type ServerOptions } from "./server.js";
