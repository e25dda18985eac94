/**
 * The worker of the order example in TypeScript: reserves stock, charges, ships.
 *
 *     npx tsx worker.mts --data books.jsonl
 *
 * It does the same tasks as ../worker.py, against books of its own (books.mts). Where the server is and with which key says the
 * environment, as for every program that uses the SDK: ORBIT_ADDRESS, ORBIT_API_KEY, ORBIT_PROFILE, ….
 */

import { parseArgs } from "node:util";
import { Client, PermanentError, RetryableError, Worker } from "@orbit/sdk";
import { Books, OutOfStockError, type Item } from "./books.mjs";

/** No card pays more than this at once. */
const CARD_LIMIT_CENTS = 100_000_000;
/** Share of charges that fail with `--charge-failures random`. */
const CHARGE_FAILURE_SHARE = 0.25;

const { values } = parseArgs({
  options: {
    data: { type: "string", default: "books.jsonl" },
    slots: { type: "string", default: "8" },
    "drain-seconds": { type: "string", default: "20" },
    // Which charges fail: `random` (a quarter), `never`, or a number N: the first N attempts of each.
    "charge-failures": { type: "string", default: "random" },
  },
});

const books = new Books(values.data);
const worker = new Worker(new Client(), {
  queues: ["default", "payments"],
  slots: Number(values.slots),
  drainTimeoutMs: Number(values["drain-seconds"]) * 1000,
});

interface Order {
  order_id: string;
  items: Item[];
}

worker.task("stock.reserve@1", ({ order_id, items }: Order, context) => {
  try {
    const reservation = books.reserve(context.idempotencyKey, order_id, items);
    context.log.info("done", { reservation });
    return { reservation };
  } catch (cause) {
    if (cause instanceof OutOfStockError) {
      throw new PermanentError(cause.message, { code: "OUT_OF_STOCK", cause });
    }
    throw cause;
  }
});

interface Charge {
  order_id: string;
  cents: number;
}

// Now and then the bank does not answer: sometimes before the money moved, sometimes after.
worker.task("payments.charge@1", ({ order_id, cents }: Charge, context) => {
  if (cents > CARD_LIMIT_CENTS) {
    // The same card would refuse again, so no attempt is wasted on it.
    throw new PermanentError("the card does not pay that much", { code: "CARD_DECLINED" });
  }
  const fails = chargeFails(context.attempt);
  if (fails && context.attempt % 2 === 1) {
    throw new RetryableError("the bank could not be reached", { code: "BANK_UNAVAILABLE" });
  }
  const receipt = books.charge(context.idempotencyKey, order_id, cents);
  if (fails) {
    // The money has moved and nobody knows. The next attempt has the same key, so it moves once.
    throw new RetryableError("the bank's answer was lost", { code: "BANK_UNAVAILABLE" });
  }
  context.log.info("done", { receipt });
  return { receipt };
});

interface Parcel {
  order_id: string;
  reservation: string;
  express: boolean;
}

worker.task("shipping.send@1", ({ order_id, express }: Parcel, context) => {
  const tracking = books.ship(context.idempotencyKey, order_id, express);
  context.log.info("done", { tracking });
  return { tracking };
});

await worker.run();
books.close();

function chargeFails(attempt: number): boolean {
  const failures = values["charge-failures"];
  return failures === "random" ? Math.random() < CHARGE_FAILURE_SHARE : failures !== "never" && attempt <= Number(failures);
}
