// The simulated engine as a subject: `spillway engine-sim` as a process of its own, ended like one.

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../engines/vllm.ts';
import { startGroup, type ProcessGroup } from '../engines/process-group.ts';
import { call } from './client.ts';
import type { Capability, ConformanceSubject, SubjectSizes } from './subject.ts';

const MODEL = 'tiny-llama';
/** Long enough to be seen, and to be told to stop in. */
const LOADING_MS = 1_500;
const MAIN = join(import.meta.dirname, '..', '..', 'bin', 'main.ts');

/** As the real engine of `../engines/vllm-subject.ts` is started. */
const SIZES: SubjectSizes = {
  maxModelLen: 8_192,
  maxNumSeqs: 8,
  maxBatchedTokens: 1_024,
  blockTokens: 32,
  kvBlocks: 320,
  maxInFlight: 12,
};

const CAPABILITIES: readonly Capability[] = ['dev-mode', 'queue-limit', 'small-kv', 'faults'];

export interface SimulatedSubject extends ConformanceSubject {
  close(): Promise<void>;
}

export async function simulatedSubject(): Promise<SimulatedSubject> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const logPath = join(mkdtempSync(join(tmpdir(), 'spillway-conformance-')), 'engine.log');
  let group: ProcessGroup | null = null;
  const command = async (path: string): Promise<void> => {
    await call(url, path, { method: 'POST' });
  };
  const stop = async (): Promise<void> => {
    await group?.stop(2_000);
    group = null;
  };
  return {
    name: 'simulated engine',
    url,
    model: MODEL,
    adapter: null,
    capabilities: new Set(CAPABILITIES),
    sizes: SIZES,
    events: null,
    loadsForMs: LOADING_MS,
    startLimitMs: 20_000,
    controls: {
      async start() {
        const args = [MAIN, 'engine-sim', ...simulatedArguments(port)];
        group = startGroup({ command: process.execPath, args, logPath });
      },
      running: () => group !== null && group.ended() === null,
      freezeCore: () => command('/sim/freeze'),
      thawCore: () => command('/sim/thaw'),
      killCore: () => command('/sim/kill-core'),
      terminate: () => {
        if (group !== null) process.kill(group.pid, 'SIGTERM');
      },
      stop,
    },
    close: stop,
  };
}

function simulatedArguments(port: number): string[] {
  return [
    ...['--port', String(port), '--model', MODEL, '--profile', 'cpu-tiny-llama'],
    ...[
      '--loading-ms',
      String(LOADING_MS),
      '--kv-tokens',
      String(SIZES.kvBlocks * SIZES.blockTokens),
    ],
    ...['--max-model-len', String(SIZES.maxModelLen)],
    ...['--max-num-queued-reqs', String(SIZES.maxInFlight), '--dev-mode'],
  ];
}
