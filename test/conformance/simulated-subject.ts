// The simulated engine as a subject: `spillway engine-sim` as a process of its own, with the flags that a real vLLM is
// given in test/engines/vllm-subject.ts, and ended like one.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startGroup, type ProcessGroup } from '../engines/process-group.ts';
import { freePort } from '../free-ports.ts';
import { call } from './client.ts';
import type { Capability, ConformanceSubject, SubjectSizes } from './subject.ts';
import { ADAPTER, eventFlags, eventPorts, eventsAt, limitFlags, SIZES } from './subject-setup.ts';

const MODEL = 'tiny-llama';
/** Long enough to be seen, and to be told to stop in. */
const LOADING_MS = 1_500;
const START_LIMIT_MS = 30_000;
const MAIN = join(import.meta.dirname, '..', '..', 'bin', 'main.ts');

const CAPABILITIES: readonly Capability[] = [
  'kv-events',
  'dev-mode',
  'queue-limit',
  'small-kv',
  'sleep',
  'lora',
  'faults',
];

export interface SimulatedSubject extends ConformanceSubject {
  /** Ends it and clears away its log. */
  close(): Promise<void>;
}

/** One rank with an adapter, or two ranks behind one port. */
export async function simulatedSubject(ranks: 1 | 2 = 1): Promise<SimulatedSubject> {
  const port = await freePort();
  const { publish, replay } = await eventPorts();
  const url = `http://127.0.0.1:${port}`;
  const folder = mkdtempSync(join(tmpdir(), 'spillway-conformance-'));
  const sizes = ranks === 1 ? SIZES : { ...SIZES, maxInFlight: null };
  const kind =
    ranks === 1
      ? ['--enable-lora', '--max-loras', '2', '--lora-modules', `${ADAPTER}=/adapters/${ADAPTER}`]
      : ['--data-parallel-size', String(ranks)];
  const flags = [...flagsOf(port, sizes), ...eventFlags(publish, replay), ...kind];
  const { group, ...controls } = processControls(flags, join(folder, 'engine.log'));
  const command = async (path: string): Promise<void> => {
    await call(url, path, { method: 'POST' });
  };
  return {
    name: 'simulated engine',
    url,
    model: MODEL,
    adapter: ranks === 1 ? ADAPTER : null,
    capabilities: new Set(CAPABILITIES),
    sizes,
    events: eventsAt(publish, replay),
    loadsForMs: LOADING_MS,
    startLimitMs: START_LIMIT_MS,
    controls: {
      ...controls,
      freezeCore: () => command('/sim/freeze'),
      thawCore: () => command('/sim/thaw'),
      killCore: () => command('/sim/kill-core'),
      terminate: () => {
        const running = group();
        if (running !== null) process.kill(running.pid, 'SIGTERM');
      },
    },
    async close() {
      await controls.stop();
      rmSync(folder, { recursive: true });
    },
  };
}

function processControls(flags: readonly string[], logPath: string) {
  let group: ProcessGroup | null = null;
  return {
    group: () => group,
    async start() {
      const args = [MAIN, 'engine-sim', ...flags];
      group = startGroup({ command: process.execPath, args, logPath });
    },
    running: () => group !== null && group.ended() === null,
    async stop() {
      await group?.stop(2_000);
      group = null;
    },
  };
}

function flagsOf(port: number, sizes: SubjectSizes): string[] {
  return [
    ...['--port', String(port), '--model', MODEL, '--profile', 'cpu-tiny-llama', '--dev-mode'],
    ...['--loading-ms', String(LOADING_MS)],
    ...['--kv-tokens', String(sizes.kvBlocks * sizes.blockTokens)],
    ...limitFlags(sizes),
  ];
}
