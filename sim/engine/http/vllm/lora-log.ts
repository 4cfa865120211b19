// The sets of adapters that were seen in use, each with the last time: vLLM's `lora_requests_info` keeps a line for
// each that ever was, and the newest is the state.

import type { EngineHost } from '../surface.ts';
import type { LoraRow } from './exposition.ts';

const SETS_MAX = 64;

export class LoraLog {
  readonly #host: EngineHost;
  readonly #seen = new Map<string, number>();

  constructor(host: EngineHost) {
    this.#host = host;
  }

  rows(): readonly LoraRow[] {
    return [...this.#seen].map(([names, atSeconds]) => ({ names, atSeconds }));
  }

  /** A step has ended. */
  look(adapters: readonly string[]): void {
    const names = adapters.join(',');
    if (!this.#seen.has(names) && this.#seen.size >= SETS_MAX) return;
    this.#seen.set(names, this.#host.runtime.clock.wallMs() / 1000);
  }
}
