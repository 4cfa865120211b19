// Waits for a condition, never for a time: polls until it holds, and fails after `timeoutMs`.

export async function until(
  condition: () => boolean | Promise<boolean>,
  timeoutMs = 10_000,
): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > deadline)
      throw new Error(`not within ${timeoutMs} ms: ${String(condition)}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
