// What VLLM_SERVER_DEV_MODE=1 adds: sleep and wake, pause and resume, cache reset. A sleep or pause is answered
// once every engine has come to rest.

import type { EngineDriver } from '../driver.ts';
import { Histogram } from '../../stats.ts';
import type { Reply } from '../reply.ts';
import { familyLines, formatFloat, sampleLine } from './text-format.ts';
import { invalid } from './validation.ts';

type PauseMode = 'abort' | 'wait' | 'keep';
type SleepOperation = 'sleep' | 'wake';

const MODES: readonly PauseMode[] = ['abort', 'wait', 'keep'];
const SLEEP_BOUNDS = [0.01, 0.1, 1, 10, 30, 60, 120, 300, 600];
const DURATION = 'vllm:sleep_mode_operation_duration_seconds';
const IN_FLIGHT = 'vllm:sleep_mode_operations_in_flight';

export class DevMode {
  readonly #engines: readonly EngineDriver[];
  readonly #operations = new Map<SleepOperation, { running: number; histogram: Histogram }>();
  /** Each waits for as many engines to come to rest. */
  #waiting: { left: number; readonly resolve: () => void }[] = [];

  constructor(engines: readonly EngineDriver[]) {
    this.#engines = engines;
  }

  /** Null where the path is another's. */
  answer(call: { method: string; path: string; query: URLSearchParams }): Promise<Reply> | null {
    switch (call.path) {
      case '/sleep':
        return this.#sleep(call.query);
      case '/wake_up':
        return this.#wake(call.query);
      case '/is_sleeping':
        return now({ is_sleeping: this.#engines.some(({ model }) => asleep(model.stats)) });
      case '/pause':
        return this.#pause(call.query);
      case '/resume':
        this.#each((engine, nowMs) => engine.model.resume(nowMs));
        return now({ status: 'resumed' });
      case '/is_paused':
        return now({ is_paused: this.#engines.some(({ model }) => model.paused) });
      case '/reset_prefix_cache':
        return this.#reset(call.query);
      case '/reset_mm_cache':
        return Promise.resolve({ status: 200, body: '' });
      default:
        return null;
    }
  }

  /** An engine has come to rest. */
  rested(): void {
    for (const waiting of this.#waiting) {
      waiting.left -= 1;
      if (waiting.left === 0) waiting.resolve();
    }
    this.#waiting = this.#waiting.filter(({ left }) => left > 0);
  }

  /** Families that are there once anything slept; after all others. */
  expositionLines(): string[] {
    if (this.#operations.size === 0) return [];
    const operations = [...this.#operations];
    return [
      ...familyLines(DURATION, 'histogram', 'Duration of one sleep-mode operation.'),
      ...operations.flatMap(([operation, { histogram }]) => durationLines(operation, histogram)),
      ...familyLines(IN_FLIGHT, 'gauge', 'Sleep-mode operations currently awaited.'),
      ...operations.map(([operation, { running }]) =>
        sampleLine(IN_FLIGHT, { operation }, running),
      ),
    ];
  }

  async #sleep(query: URLSearchParams): Promise<Reply> {
    const level = Number(query.get('level') ?? 1);
    const mode = modeOf(query);
    if (level !== 0 && level !== 1 && level !== 2) {
      const msg = 'Input should be less than or equal to 2';
      return invalid([
        { type: 'less_than_equal', loc: 'query.level', msg, input: query.get('level') },
      ]);
    }
    if (mode === null) return wrongMode(query);
    await this.#timed('sleep', () =>
      this.#rest((engine, nowMs) => engine.model.sleep({ level, mode }, nowMs)),
    );
    return { status: 200, body: { status: 'sleeping', level } };
  }

  async #wake(query: URLSearchParams): Promise<Reply> {
    const tags = query.getAll('tags');
    await this.#timed('wake', async () => {
      this.#each((engine, nowMs) => engine.model.resume(nowMs));
    });
    return { status: 200, body: { status: 'awake', tags: tags.length === 0 ? null : tags } };
  }

  async #pause(query: URLSearchParams): Promise<Reply> {
    const mode = modeOf(query);
    if (mode === null) return wrongMode(query);
    const clearCache = query.get('clear_cache') !== 'false';
    await this.#rest((engine, nowMs) => engine.model.pause({ mode, clearCache }, nowMs));
    return { status: 200, body: { status: 'paused' } };
  }

  /** Fails while anything holds KV, unless what runs is to be computed again. */
  async #reset(query: URLSearchParams): Promise<Reply> {
    if (query.get('reset_running_requests') === 'true') {
      const how = { mode: 'keep', clearCache: true } as const;
      await this.#rest((engine, nowMs) => engine.model.pause(how, nowMs));
      this.#each((engine, nowMs) => engine.model.resume(nowMs));
      return { status: 200, body: { success: true } };
    }
    let success = true;
    this.#each((engine) => {
      if (!engine.model.resetPrefixCache()) success = false;
    });
    return { status: 200, body: { success } };
  }

  #each(act: (engine: EngineDriver, nowMs: number) => void): void {
    for (const engine of this.#engines) engine.change((nowMs) => act(engine, nowMs));
  }

  /** An idle engine comes to rest while it is told to. */
  #rest(act: (engine: EngineDriver, nowMs: number) => void): Promise<void> {
    const rested = new Promise<void>((resolve) => {
      this.#waiting.push({ left: this.#engines.length, resolve });
    });
    this.#each(act);
    return rested;
  }

  async #timed(operation: SleepOperation, act: () => Promise<void>): Promise<void> {
    const known = this.#operations.get(operation) ?? {
      running: 0,
      histogram: new Histogram(SLEEP_BOUNDS),
    };
    this.#operations.set(operation, known);
    const startMs = this.#engines[0]?.nowMs() ?? 0;
    known.running += 1;
    await act();
    known.running -= 1;
    known.histogram.observe(((this.#engines[0]?.nowMs() ?? startMs) - startMs) / 1000);
  }
}

function durationLines(operation: string, histogram: Histogram): string[] {
  const cumulative = histogram.cumulative();
  return [
    ...histogram.bounds.map((bound, at) =>
      sampleLine(`${DURATION}_bucket`, { le: formatFloat(bound), operation }, cumulative[at] ?? 0),
    ),
    sampleLine(`${DURATION}_bucket`, { le: '+Inf', operation }, histogram.count),
    sampleLine(`${DURATION}_count`, { operation }, histogram.count),
    sampleLine(`${DURATION}_sum`, { operation }, histogram.sum),
  ];
}

function asleep({ sleepLevel }: { readonly sleepLevel: number | null }): boolean {
  return sleepLevel !== null;
}

function modeOf(query: URLSearchParams): PauseMode | null {
  const given = query.get('mode') ?? 'abort';
  return MODES.find((mode) => mode === given) ?? null;
}

function wrongMode(query: URLSearchParams): Reply {
  const msg = "Input should be 'abort', 'wait' or 'keep'";
  return invalid([{ type: 'literal_error', loc: 'query.mode', msg, input: query.get('mode') }]);
}

function now(body: object): Promise<Reply> {
  return Promise.resolve({ status: 200, body });
}
