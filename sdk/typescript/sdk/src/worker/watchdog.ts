/**
 * Notices that Node's one thread was blocked: nothing else ran meanwhile, no heartbeat left, and tasks may have been handed out
 * again. It tells so afterwards, with the tasks that were at work, since one of them has done it.
 */

import type { Logger } from "../logger.js";

/** How often it looks, and how long the thread must have been blocked to be worth a record, in milliseconds. */
const LOOK_MS = 250;
const BLOCKED_MS = 1_000;

/** Watches until the function that it returns is called. `running` names the contracts of the handlers at work. */
export function watchThread(log: Logger, running: () => readonly string[]): () => void {
  let looked = performance.now();
  let contracts: readonly string[] = [];
  const timer = setInterval(() => {
    const blockedMs = performance.now() - looked - LOOK_MS;
    if (blockedMs > BLOCKED_MS) {
      const suspects = [...new Set([...contracts, ...running()])];
      log.warn("the thread was blocked: no heartbeat could leave", {
        seconds: Number((blockedMs / 1000).toFixed(1)),
        contracts: suspects.join(" "),
      });
    }
    looked = performance.now();
    contracts = running();
  }, LOOK_MS);
  // A worker that has nothing else to do ends its process.
  timer.unref();
  return () => {
    clearInterval(timer);
  };
}
