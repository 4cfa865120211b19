// SGLang's health: a generation of one token, looked at once a second.
//
// 503 while it starts and after SIGTERM. Else a request goes in; each second it is looked whether anything at all came back
// from the model since: then 200, at the earliest after one second. After 20 seconds of nothing 503, and the server is
// unhealthy until something comes back again.

import type { EngineDriver } from '../driver.ts';
import { GenerationRun } from '../generation.ts';

const LOOK_MS = 1_000;
const TIMEOUT_MS = 20_000;

export class SglangHealth {
  readonly #after: (delayMs: number, task: () => void) => void;
  #answeredMs: number | null = null;
  #serial = 0;
  /** Nothing came back in time, and nothing since. */
  unhealthy = false;

  constructor(after: (delayMs: number, task: () => void) => void) {
    this.#after = after;
  }

  /** The model answered somebody. */
  answered(nowMs: number): void {
    this.#answeredMs = nowMs;
    this.unhealthy = false;
  }

  /** Tells how it is, once. */
  check(engine: EngineDriver, done: (healthy: boolean) => void): void {
    const startedMs = engine.nowMs();
    this.#serial += 1;
    const id = `HEALTH_CHECK_${this.#serial}`;
    const prompts = [Uint32Array.from([0])];
    const run = new GenerationRun(engine, { id, prompts, n: 1, maxTokens: 1 });
    run.submit({
      token: () => this.answered(engine.nowMs()),
      ended: () => {},
      failed: () => {},
    });
    const look = (): void => {
      const alive = this.#answeredMs !== null && this.#answeredMs >= startedMs;
      const late = engine.nowMs() - startedMs >= TIMEOUT_MS;
      if (!alive && !late) return this.#after(LOOK_MS, look);
      run.abort();
      this.unhealthy = !alive;
      done(alive);
    };
    this.#after(LOOK_MS, look);
  }
}
