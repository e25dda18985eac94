/** Time: pauses that a signal ends, and growing random ones between tries. */

/** Waits; returns at once when the signal is aborted, which is no error. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done, { once: true });
  });
}

/** Pauses between tries: each up to twice as long as the one before, random from zero on, so that many clients spread. */
export class Backoff {
  #next: number;

  /** In milliseconds: the bound of the first pause, and of all. */
  constructor(
    private readonly first = 100,
    private readonly longest = 10_000,
  ) {
    this.#next = first;
  }

  /** It works again. */
  reset(): void {
    this.#next = this.first;
  }

  /** How long to wait before the next try. */
  next(): number {
    const bound = this.#next;
    this.#next = Math.min(this.longest, bound * 2);
    return Math.random() * bound;
  }
}

/** Milliseconds of a clock that never goes back. */
export function monotonic(): number {
  return performance.now();
}
