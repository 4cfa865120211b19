// The two engines that every arm stands before: real ones, each held on its core, or simulated ones to develop the benchmark
// with, which say so in every result. Between arms they come to rest and forget all prompts.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createHash } from 'node:crypto';
import { startGroup } from '../../test/engines/process-group.ts';
import {
  BEHIND_ROUTER,
  Engine,
  KV_TOKENS,
  MODEL,
  MODEL_FOLDER,
  placeEngine,
  sumOfSeries,
} from '../../test/engines/vllm.ts';
import { delay, waitFor } from '../../test/engines/wait.ts';
import { freePort } from '../../test/free-ports.ts';
import { hold } from './generator.ts';
import { warmUpOf } from './workload.ts';

export type EngineKind = 'vllm' | 'sim';

export interface BenchEngine {
  readonly url: string;
  readonly pid: number;
  untilServing(): Promise<void>;
  stop(): Promise<void>;
}

export interface EnginesPlace {
  readonly kind: EngineKind;
  /** KV cache of each. */
  readonly kvTokens: number;
  /** Of the installed engine; unused where engines are simulated. */
  readonly install: string;
  /** Path of the `spillway` that simulates engines. */
  readonly spillway: string;
  /** For logs. */
  readonly folder: string;
}

const NAMES = ['engine-a', 'engine-b'] as const;
/** vllm-router asks engines to render each prompt, and without it forgets affinity in silence. */
const FOR_PEERS = ['--enable-scale-out'] as const;
const BLOCK_TOKENS = 32;
const SERVE_LIMIT_MS = 300_000;
const REST_LIMIT_MS = 120_000;
const WARM_UPS = 2;

/** What of the engines a result depends on. */
export function engineDigest(kind: EngineKind, kvTokens: number): string {
  const flags = [BEHIND_ROUTER, FOR_PEERS, ...(kvTokens === KV_TOKENS ? [] : [kvTokens])];
  const hash = createHash('sha256').update(JSON.stringify([kind, ...flags]));
  for (const file of ['config.json', 'tokenizer.json']) {
    hash.update(readFileSync(join(MODEL_FOLDER, file)));
  }
  return hash.digest('hex').slice(0, 16);
}

/** Started, loaded and warm. */
export async function startEngines(place: EnginesPlace): Promise<EnginePair> {
  const engines = await Promise.all(NAMES.map((name, core) => startOne(name, core, place)));
  await Promise.all(engines.map((engine) => engine.untilServing()));
  const pair = new EnginePair(engines);
  for (let round = 0; round < WARM_UPS; round += 1) {
    await hold(warmUpOf(`the engines, round ${round}`), pair.urls);
  }
  return pair;
}

export class EnginePair {
  readonly engines: readonly BenchEngine[];
  readonly urls: readonly string[];

  constructor(engines: readonly BenchEngine[]) {
    this.engines = engines;
    this.urls = engines.map(({ url }) => url);
  }

  /** Waits until nothing runs or waits in either; what clients gave up is computed to its end. */
  async untilAtRest(): Promise<void> {
    await waitFor({ what: 'the engines come to rest', limitMs: REST_LIMIT_MS }, async () => {
      const busy = await Promise.all(
        this.urls.map(async (url) => {
          const text = await expositionOf(url);
          const running = sumOfSeries(text, 'vllm:num_requests_running') ?? 1;
          return running + (sumOfSeries(text, 'vllm:num_requests_waiting') ?? 1);
        }),
      );
      return busy.every((requests) => requests === 0) ? true : null;
    });
  }

  /** Empties both prefix caches; throws where an engine does not say that it did. */
  async reset(): Promise<void> {
    await this.untilAtRest();
    for (const url of this.urls) {
      await waitFor({ what: `${url} empties its cache`, limitMs: 10_000 }, async () => {
        const answer = await fetch(`${url}/reset_prefix_cache`, { method: 'POST' });
        const { success } = (await answer.json()) as { success?: boolean };
        return success === true ? true : null;
      });
    }
    // The scheduler forgets at once, its gauges with the next step.
    await delay(100);
  }

  /** Requests that each has finished since it started. */
  async finished(): Promise<number[]> {
    return Promise.all(
      this.urls.map(
        async (url) => sumOfSeries(await expositionOf(url), 'vllm:request_success_total') ?? 0,
      ),
    );
  }

  async stop(): Promise<void> {
    await Promise.all(this.engines.map((engine) => engine.stop()));
  }
}

async function startOne(name: string, core: number, place: EnginesPlace): Promise<BenchEngine> {
  return place.kind === 'sim' ? simulated(name, place) : real(name, core, place);
}

async function real(name: string, core: number, place: EnginesPlace): Promise<BenchEngine> {
  const blocks = Math.round(place.kvTokens / BLOCK_TOKENS);
  const setup = {
    // Of a flag that is given twice the last counts.
    flags: [...BEHIND_ROUTER.flags, ...FOR_PEERS, '--num-gpu-blocks-override', String(blocks)],
    env: { VLLM_SERVER_DEV_MODE: '1' },
  };
  const engine = new Engine(await placeEngine(name, core, place.folder), place.install, setup);
  engine.start();
  return {
    url: engine.place.url,
    pid: engine.pid,
    untilServing: () => engine.untilServing(SERVE_LIMIT_MS),
    stop: () => engine.stop(),
  };
}

async function simulated(name: string, place: EnginesPlace): Promise<BenchEngine> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const group = startGroup({
    command: place.spillway,
    args: [
      ...['engine-sim', '--profile', 'cpu-tiny-llama', '--dev-mode', '--loading-ms', '0'],
      ...['--port', String(port), '--model', MODEL, '--kv-tokens', String(place.kvTokens)],
      ...FOR_PEERS,
    ],
    logPath: join(place.folder, `${name}.log`),
  });
  return {
    url,
    pid: group.pid,
    untilServing: () =>
      waitFor({ what: `${name} serves`, limitMs: 20_000 }, async () =>
        (await fetch(`${url}/health`).catch(() => null)) === null ? null : true,
      ).then(() => undefined),
    stop: () => group.stop(1_000),
  };
}

async function expositionOf(url: string): Promise<string> {
  const answer = await fetch(`${url}/metrics`, { signal: AbortSignal.timeout(10_000) });
  return answer.text();
}
