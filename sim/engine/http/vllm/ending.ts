// How a vLLM ends: when its core dies, and when it is told to by SIGTERM.
//
// With `--shutdown-timeout 0`, the default, the listening port closes at once and a stream that runs ends in one of
// three ways, by chance: nothing more comes while the connection stays open, an error event and `[DONE]`, or
// a last chunk with reason `abort` and `[DONE]` (test/fixtures/vllm-0.32.0/stream-term-*.json). With a time-out the
// port stays open, what runs may finish, and what comes is answered 200 with reason `abort` and no token.

import type { EngineHost } from '../surface.ts';
import { TERM_ENDINGS, type TermEnding, type VllmOptions } from './options.ts';

const CLOSE_AFTER_CORE_DEATH_MS = 2_000;
/** Recorded: nothing for over 20 s; a supervisor would have killed it by then. */
const HANG_MS = 30_000;
/** Until the last bytes are out. */
const FLUSH_MS = 200;

export class VllmEnding {
  readonly #host: EngineHost;
  readonly #options: VllmOptions;
  #stopping = 0;

  constructor(host: EngineHost, options: VllmOptions) {
    this.#host = host;
    this.#options = options;
  }

  /** It then ends as if it had been told to: its HTTP server is, and nothing is raised (vLLM's launcher.py). */
  coreDied(): void {
    this.#host.after(CLOSE_AFTER_CORE_DEATH_MS, () => this.#host.exit());
  }

  /** One rank's shutdown is through. */
  stopped(): void {
    this.#stopping -= 1;
    if (this.#stopping === 0) this.#host.after(FLUSH_MS, () => this.#host.exit());
  }

  terminate(): void {
    const { engines } = this.#host;
    if (engines.some(({ model }) => model.phase !== 'serving')) return this.#host.exit();
    const timeoutMs = this.#options.shutdownTimeoutMs ?? 0;
    if (timeoutMs > 0) {
      this.#shutDown({ mode: 'drain', timeoutMs });
      return;
    }
    this.#host.stopListening();
    if (engines.every(({ model }) => model.openRequests === 0)) return this.#host.exit();
    this.#end(this.#options.termEnding ?? this.#chosen());
  }

  #end(ending: TermEnding): void {
    const { engines } = this.#host;
    if (ending === 'abort') this.#shutDown({ mode: 'abort' });
    else if (ending === 'hang') {
      for (const engine of engines) engine.stop();
      this.#host.after(HANG_MS, () => this.#host.exit());
    } else {
      for (const engine of engines) engine.change((nowMs) => engine.model.killCore(nowMs));
      this.#host.after(FLUSH_MS, () => this.#host.exit());
    }
  }

  #shutDown(how: { readonly mode: 'abort' | 'drain'; readonly timeoutMs?: number }): void {
    const { engines } = this.#host;
    this.#stopping = engines.length;
    for (const engine of engines) engine.change((nowMs) => engine.model.beginShutdown(how, nowMs));
  }

  #chosen(): TermEnding {
    const at = Math.floor(this.#host.runtime.random.next() * TERM_ENDINGS.length);
    return TERM_ENDINGS[at] ?? 'error';
  }
}
