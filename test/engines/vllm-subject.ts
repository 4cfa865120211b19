// A real vLLM as a subject of `test/conformance`: small in KV so that it can be filled in seconds, with the endpoints of
// development, KV events with replay, and a limit on requests in flight.

import type { Capability, ConformanceSubject, SubjectSizes } from '../conformance/subject.ts';
import { Engine, freePort, MODEL, placeEngine, type EngineSetup } from './vllm.ts';

/** Starting takes about a minute on a quiet machine, and much longer on a busy one. */
const START_LIMIT_MS = 240_000;
const TOPIC = 'kv@conformance';

const SIZES: SubjectSizes = {
  maxModelLen: 8_192,
  maxNumSeqs: 8,
  maxBatchedTokens: 1_024,
  blockTokens: 32,
  kvBlocks: 320,
  maxInFlight: 12,
};

const CAPABILITIES: readonly Capability[] = [
  'kv-events',
  'dev-mode',
  'queue-limit',
  'small-kv',
  'sleep',
  'single-rank',
  'faults',
];

export interface SubjectPlace {
  /** For logs and pid files. */
  readonly folder: string;
  readonly install: string;
  readonly core: number;
}

/** One engine; it is started by whoever uses it. */
export async function vllmSubject(place: SubjectPlace): Promise<ConformanceSubject> {
  const [publish, replay] = [await freePort(), await freePort()];
  const setup: EngineSetup = {
    flags: [...sizeFlags(SIZES), ...eventFlags(publish, replay)],
    env: { VLLM_SERVER_DEV_MODE: '1' },
  };
  const enginePlace = await placeEngine('conformance', place.core, place.folder);
  const engine = new Engine(enginePlace, place.install, setup);
  return {
    name: 'vLLM 0.32.0',
    url: enginePlace.url,
    model: MODEL,
    capabilities: new Set(CAPABILITIES),
    sizes: SIZES,
    events: {
      publish: `tcp://127.0.0.1:${publish}`,
      replay: `tcp://127.0.0.1:${replay}`,
      topic: TOPIC,
    },
    startLimitMs: START_LIMIT_MS,
    controls: controlsOf(engine),
  };
}

function controlsOf(engine: Engine): ConformanceSubject['controls'] {
  return {
    start: async () => engine.start(),
    running: () => engine.running(),
    freezeCore: async () => engine.signalCore('SIGSTOP'),
    thawCore: async () => engine.signalCore('SIGCONT'),
    killCore: async () => engine.killCore(),
    terminate: () => engine.terminate(),
    stop: () => engine.stop(),
  };
}

function sizeFlags(sizes: SubjectSizes): string[] {
  const inFlight =
    sizes.maxInFlight === null ? [] : ['--max-num-queued-reqs', String(sizes.maxInFlight)];
  return [
    ...['--max-model-len', String(sizes.maxModelLen), '--max-num-seqs', String(sizes.maxNumSeqs)],
    ...['--max-num-batched-tokens', String(sizes.maxBatchedTokens)],
    ...['--block-size', String(sizes.blockTokens)],
    ...['--num-gpu-blocks-override', String(sizes.kvBlocks)],
    ...inFlight,
  ];
}

// With a host in its endpoint the publisher would connect; with a star it binds.
function eventFlags(publish: number, replay: number): string[] {
  const config = {
    enable_kv_cache_events: true,
    endpoint: `tcp://*:${publish}`,
    replay_endpoint: `tcp://*:${replay}`,
    topic: TOPIC,
  };
  return ['--kv-events-config', JSON.stringify(config)];
}
