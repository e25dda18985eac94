/**
 * The shop's own books: stock, ledger and shipments, one line of JSON for each thing that was done.
 *
 * They stand for the systems that real handlers talk to. Each operation takes an idempotency key and happens once for it: the
 * line has the key and the work together, so a task that is handed out again, or whose report was lost, finds its own result
 * and does nothing twice.
 */

import { closeSync, fsyncSync, ftruncateSync, openSync, readFileSync, rmSync, writeFileSync, writeSync } from "node:fs";

/** Something that is ordered. */
export interface Item {
  readonly sku: string;
  readonly quantity?: number;
}

/** One thing that was done. */
interface Entry {
  readonly key: string;
  readonly kind: "reservation" | "charge" | "shipment";
  readonly orderId: string;
  /** Of a charge. */
  readonly cents?: number;
  /** Of a reservation. */
  readonly items?: readonly Item[];
  readonly result: string;
}

/** There is not enough of something. Nothing was reserved. */
export class OutOfStockError extends Error {}

/** How many pieces there are of something that is asked for the first time. */
const FIRST_STOCK = 1_000_000;

/** The books. One process has them at a time. */
export class Books {
  readonly #done = new Map<string, Entry>();
  readonly #reserved = new Map<string, number>();
  readonly #file: number;

  /** Opens the books at `path` and makes them if they are not there. */
  constructor(private readonly path: string) {
    lock(`${path}.lock`);
    this.#file = openSync(path, "a+");
    const text = readFileSync(path, "utf8");
    // A line without an end was cut off by a crash: it was never reported.
    const whole = text.slice(0, text.lastIndexOf("\n") + 1);
    ftruncateSync(this.#file, Buffer.byteLength(whole));
    for (const line of whole.split("\n").filter((each) => each !== "")) {
      this.#take(JSON.parse(line) as Entry);
    }
  }

  /** Takes all items out of the stock, or throws `OutOfStockError` and takes none. */
  reserve(key: string, orderId: string, items: readonly Item[]): string {
    return this.#once({ key, kind: "reservation", orderId, items, result: `R-${key.slice(0, 12)}` });
  }

  /** Writes one entry into the ledger. */
  charge(key: string, orderId: string, cents: number): string {
    return this.#once({ key, kind: "charge", orderId, cents, result: `C-${key.slice(0, 12)}` });
  }

  /** Sends the order off; the tracking number says how. */
  ship(key: string, orderId: string, express: boolean): string {
    return this.#once({ key, kind: "shipment", orderId, result: `${express ? "X" : "T"}-${key.slice(0, 12)}` });
  }

  close(): void {
    closeSync(this.#file);
    rmSync(`${this.path}.lock`, { force: true });
  }

  /** Does something and records it, durably; a key that is there gives its result again. */
  #once(entry: Entry): string {
    const before = this.#done.get(entry.key);
    if (before !== undefined) {
      return before.result;
    }
    const wanted = new Map<string, number>();
    for (const { sku, quantity = 1 } of entry.items ?? []) {
      wanted.set(sku, (wanted.get(sku) ?? 0) + quantity);
    }
    for (const [sku, quantity] of wanted) {
      if (FIRST_STOCK - (this.#reserved.get(sku) ?? 0) < quantity) {
        throw new OutOfStockError(`there are not ${String(quantity)} of ${sku}`);
      }
    }
    writeSync(this.#file, `${JSON.stringify(entry)}\n`);
    fsyncSync(this.#file);
    this.#take(entry);
    return entry.result;
  }

  #take(entry: Entry): void {
    this.#done.set(entry.key, entry);
    for (const { sku, quantity = 1 } of entry.items ?? []) {
      this.#reserved.set(sku, (this.#reserved.get(sku) ?? 0) + quantity);
    }
  }
}

/** Makes a file that says which process has the books; one that a crash left behind counts for nothing. */
function lock(path: string): void {
  try {
    writeFileSync(path, String(process.pid), { flag: "wx" });
  } catch (error) {
    const owner = Number(readFileSync(path, "utf8"));
    if (owner !== process.pid && isAlive(owner)) {
      throw new Error(`process ${String(owner)} has these books`, { cause: error });
    }
    writeFileSync(path, String(process.pid));
  }
}

function isAlive(id: number): boolean {
  try {
    return process.kill(id, 0);
  } catch {
    return false;
  }
}
