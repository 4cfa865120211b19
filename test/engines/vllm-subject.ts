// A real vLLM as a subject of `test/conformance`: small in KV so that it can be filled in seconds, with the endpoints of
// development, KV events with replay, a limit on requests in flight and an adapter; or with two ranks behind one port.

import { join } from 'node:path';
import { seededRandom } from '../../shared/lib/random.ts';
import type { Capability, ConformanceSubject, SubjectSizes } from '../conformance/subject.ts';
import {
  ADAPTER,
  eventFlags,
  eventPorts,
  eventsAt,
  limitFlags,
  SIZES,
} from '../conformance/subject-setup.ts';
import { writeLoraAdapter } from './lora-adapter.ts';
import { Engine, MODEL, placeEngine, type EngineSetup } from './vllm.ts';

/** Starting takes a minute or two on a quiet machine, several on a busy one. */
const START_LIMIT_MS = 400_000;
const LOADS_FOR_MS = 20_000;

export interface SubjectPlace {
  /** For logs, pid files and the adapter. */
  readonly folder: string;
  readonly install: string;
}

/** One engine on the first core; it is started by whoever uses it. */
export async function vllmSubject(place: SubjectPlace): Promise<ConformanceSubject> {
  const adapter = join(place.folder, ADAPTER);
  writeLoraAdapter(adapter, seededRandom(1));
  return subjectOf(place, {
    name: 'conformance',
    sizes: SIZES,
    adapter: ADAPTER,
    capabilities: ['kv-events', 'dev-mode', 'queue-limit', 'small-kv', 'sleep', 'lora', 'faults'],
    flags: [
      ...['--enable-lora', '--max-loras', '2', '--max-lora-rank', '8'],
      ...['--lora-modules', `${ADAPTER}=${adapter}`],
    ],
  });
}

/** Two ranks on two cores. */
export function vllmRanksSubject(place: SubjectPlace): Promise<ConformanceSubject> {
  return subjectOf(place, {
    name: 'conformance-ranks',
    sizes: { ...SIZES, maxInFlight: null },
    adapter: null,
    capabilities: ['kv-events', 'dev-mode', 'small-kv', 'faults'],
    flags: ['--data-parallel-size', '2'],
    cores: [0, 1],
  });
}

interface SubjectPlan {
  readonly name: string;
  readonly sizes: SubjectSizes;
  readonly adapter: string | null;
  readonly capabilities: readonly Capability[];
  readonly flags: readonly string[];
  readonly cores?: readonly number[];
}

async function subjectOf(place: SubjectPlace, plan: SubjectPlan): Promise<ConformanceSubject> {
  const { publish, replay } = await eventPorts();
  const setup: EngineSetup = {
    flags: [...sizeFlags(plan.sizes), ...eventFlags(publish, replay), ...plan.flags],
    env: { VLLM_SERVER_DEV_MODE: '1' },
    cores: plan.cores ?? [0],
  };
  const enginePlace = await placeEngine(plan.name, 0, place.folder);
  const engine = new Engine(enginePlace, place.install, setup);
  return {
    name: plan.cores === undefined ? 'vLLM 0.32.0' : 'vLLM 0.32.0 of two ranks',
    url: enginePlace.url,
    model: MODEL,
    adapter: plan.adapter,
    capabilities: new Set(plan.capabilities),
    sizes: plan.sizes,
    events: eventsAt(publish, replay),
    loadsForMs: LOADS_FOR_MS,
    startLimitMs: START_LIMIT_MS,
    controls: {
      start: async () => engine.start(),
      running: () => engine.running(),
      freezeCore: async () => engine.signalCore('SIGSTOP'),
      thawCore: async () => engine.signalCore('SIGCONT'),
      killCore: async () => engine.killCore(),
      terminate: () => engine.terminate(),
      stop: () => engine.stop(),
    },
  };
}

function sizeFlags(sizes: SubjectSizes): string[] {
  return [
    ...limitFlags(sizes),
    ...['--block-size', String(sizes.blockTokens)],
    ...['--num-gpu-blocks-override', String(sizes.kvBlocks)],
  ];
}
