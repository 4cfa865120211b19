// Waits for a condition, never for a time: polls until it holds, and fails after `timeoutMs`.

export interface Patience {
  readonly timeoutMs?: number;
  readonly pollMs?: number;
  /** What to say of a wait that failed. */
  readonly says?: () => string;
}

export async function until(
  condition: () => boolean | Promise<boolean>,
  { timeoutMs = 20_000, pollMs = 10, says = () => '' }: Patience = {},
): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > deadline) {
      throw new Error(`not within ${timeoutMs} ms: ${String(condition)}\n${says()}`);
    }
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
}
