// Waiting for something to become true, with a limit and a name for the error.

export function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

export interface WaitOptions {
  readonly what: string;
  readonly limitMs: number;
  /** ms between two looks. */
  readonly everyMs?: number;
}

/** The first value that is not null; throws after the limit. */
export async function waitFor<T>(
  options: WaitOptions,
  look: () => T | null | Promise<T | null>,
): Promise<T> {
  const until = performance.now() + options.limitMs;
  for (;;) {
    const value = await look();
    if (value !== null) return value;
    if (performance.now() > until) {
      throw new Error(`waited ${options.limitMs / 1_000} s in vain: ${options.what}`);
    }
    await delay(options.everyMs ?? 100);
  }
}
