// New conversations at an even rate, each of one turn, while a scene goes on.

import { ask, type Answer } from './client.ts';
import { prompt, type Playing } from './scene.ts';

export interface TrafficOptions {
  readonly base: string;
  readonly key: string;
  readonly perS: number;
  readonly promptTokens: number;
  readonly maxTokens: number;
}

export interface Sent {
  readonly sentMs: number;
  readonly answer: Answer;
}

export class Traffic {
  readonly #options: TrafficOptions;
  readonly #playing: Playing;
  readonly #open = new Set<Promise<void>>();
  readonly #done: Sent[] = [];
  readonly #stop: () => void;

  constructor(options: TrafficOptions, playing: Playing) {
    this.#options = options;
    this.#playing = playing;
    this.#stop = playing.timers.every(1_000 / options.perS, () => this.#send());
  }

  /** Those that have ended, of those sent since then. */
  since(fromMs: number): readonly Sent[] {
    return this.#done.filter(({ sentMs }) => sentMs >= fromMs);
  }

  /** No more; resolves with all when the last has ended. */
  async end(): Promise<readonly Sent[]> {
    this.#stop();
    await Promise.all(this.#open);
    return this.#done;
  }

  #send(): void {
    const { base, key, promptTokens, maxTokens } = this.#options;
    const sentMs = this.#playing.clock.nowMs();
    const content = prompt(promptTokens, this.#playing.random);
    const messages = [{ role: 'user', content }] as const;
    const one = ask({ base, key, messages, maxTokens }).then((answer) => {
      this.#done.push({ sentMs, answer });
      this.#open.delete(one);
    });
    this.#open.add(one);
  }
}

/** Of these, the share that was served there. */
export function shareIn(region: string, sent: readonly Sent[]): number {
  const served = sent.filter(({ answer }) => answer.region !== null);
  if (served.length === 0) return 0;
  return served.filter(({ answer }) => answer.region === region).length / served.length;
}
