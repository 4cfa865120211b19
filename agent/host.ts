// The machine, looked at every 10 s: its GPUs for each engine's core, its processor and memory for people. Nothing here
// is awaited by a core, and nothing is fatal: a tool that is missing, fails or hangs leaves its figures unknown. One
// that no signal ends (it waits for a GPU that has fallen off the bus) is not started again before it has ended.
//
// Where several engines share the machine, one is only told of GPUs that are known to be its own: a GPU that nobody can
// assign must not take all of them out of service.

import { execFile } from 'node:child_process';
import type { ReplicaId } from '../shared/model/ids.ts';
import type { Timers } from '../shared/runtime/timers.ts';
import { GpuAssignment, procFacts, type ProcessFacts } from './host-gpus.ts';
import type { MachineFacts } from './host-machine.ts';
import {
  computeApps,
  GPU_FIELDS,
  gpuReading,
  isUnknownField,
  THROTTLE_FIELDS,
  type SmiOutput,
} from './nvidia-smi.ts';
import type { GpuFacts, GpuReading } from './policy/gpu-presence.ts';

export interface HostFacts {
  readonly machine: MachineFacts;
  readonly gpus: readonly GpuFacts[];
}

export interface HostEngine {
  readonly replica: ReplicaId;
  /** Its process, where evidence has named one. */
  readonly pid: () => number | null;
}

export interface HostWatchOptions {
  readonly engines: readonly HostEngine[];
  readonly timers: Timers;
  readonly runSmi: (args: readonly string[]) => Promise<SmiOutput>;
  readonly machine: () => MachineFacts;
  readonly processes?: ProcessFacts;
  readonly onGpus: (
    replica: ReplicaId,
    reading: GpuReading,
    uuids: readonly string[] | null,
  ) => void;
}

const INTERVAL_MS = 10_000;
/** Where there is no such tool it is looked for so seldom: the attempt to start one takes some ms. */
const NO_TOOL_MS = 60_000;
const SMI_TIMEOUT_MS = 5_000;
/** After which it is left alone, ms. */
const SMI_HANGS_MS = 6_000;
/** Of an error: no such program. */
const MISSING = 'ENOENT';
const NO_OUTPUT: SmiOutput = { exitCode: null, stdout: '', stderr: '' };
const SMI_BYTES = 1_024 * 1_024;
const FORMAT = '--format=csv,noheader,nounits';
const UNKNOWN: MachineFacts = { cpuRatio: null, memoryTotalBytes: null, memoryUsedBytes: null };

export class HostWatch {
  readonly #options: HostWatchOptions;
  readonly #assignments: ReadonlyMap<ReplicaId, GpuAssignment>;
  #throttleFields: readonly string[] = THROTTLE_FIELDS;
  #facts: HostFacts = { machine: UNKNOWN, gpus: [] };
  #cancel: (() => void) | null = null;
  #smiHangs = false;
  /** Looks to come that do not ask for GPUs. */
  #without = 0;
  #stopped = false;

  constructor(options: HostWatchOptions) {
    const processes = options.processes ?? procFacts;
    this.#options = options;
    this.#assignments = new Map(
      options.engines.map(({ replica }) => [replica, new GpuAssignment(processes)]),
    );
  }

  /** As last seen. */
  get facts(): HostFacts {
    return this.#facts;
  }

  start(): void {
    void this.#look();
  }

  stop(): void {
    this.#stopped = true;
    this.#cancel?.();
  }

  async #look(): Promise<void> {
    const machine = this.#machine();
    const reading = await this.#readGpus();
    this.#facts = { machine, gpus: reading.kind === 'gpus' ? reading.gpus : [] };
    if (this.#stopped) return;
    await this.#tell(reading);
    if (!this.#stopped)
      this.#cancel = this.#options.timers.after(INTERVAL_MS, () => void this.#look());
  }

  async #tell(reading: GpuReading): Promise<void> {
    const { engines, onGpus } = this.#options;
    const pids = engines.map(({ pid }) => pid());
    const gpus = reading.kind === 'gpus' ? reading.gpus : [];
    const alone = engines.length === 1;
    const told: GpuReading = reading.kind === 'lost' && !alone ? { kind: 'unknown' } : reading;
    const apps =
      gpus.length > 0 && pids.some((pid) => pid !== null) ? await this.#apps() : new Map();
    for (const [at, { replica }] of engines.entries()) {
      const uuids = await this.#assignments.get(replica)?.of(pids[at] ?? null, gpus, apps);
      if (!this.#stopped) onGpus(replica, told, uuids ?? (alone ? null : []));
    }
  }

  async #readGpus(): Promise<GpuReading> {
    if (this.#without > 0) {
      this.#without -= 1;
      return { kind: 'unknown' };
    }
    for (;;) {
      const [throttle] = this.#throttleFields;
      const fields = throttle === undefined ? GPU_FIELDS : [...GPU_FIELDS, throttle];
      const output = await this.#smi([`--query-gpu=${fields.join(',')}`, FORMAT]);
      if (output.missing === true) this.#without = NO_TOOL_MS / INTERVAL_MS - 1;
      if (throttle === undefined || !isUnknownField(output)) return gpuReading(output);
      this.#throttleFields = this.#throttleFields.slice(1);
    }
  }

  async #apps(): Promise<ReturnType<typeof computeApps>> {
    const output = await this.#smi(['--query-compute-apps=pid,gpu_uuid', FORMAT]);
    return computeApps(output.exitCode === 0 ? output.stdout : '');
  }

  async #smi(args: readonly string[]): Promise<SmiOutput> {
    if (this.#smiHangs) return NO_OUTPUT;
    const { runSmi, timers } = this.#options;
    const late = Promise.withResolvers<SmiOutput>();
    const cancel = timers.after(SMI_HANGS_MS, () => {
      this.#smiHangs = true;
      late.resolve(NO_OUTPUT);
    });
    const ended = runSmi(args).finally(() => {
      this.#smiHangs = false;
      cancel();
    });
    return Promise.race([ended, late.promise]);
  }

  #machine(): MachineFacts {
    try {
      return this.#options.machine();
    } catch {
      return UNKNOWN;
    }
  }
}

/** Runs `nvidia-smi`; where there is none, it takes too long, or the machine starts no process, there is no exit code. */
export function runSmi(args: readonly string[]): Promise<SmiOutput> {
  const { promise, resolve } = Promise.withResolvers<SmiOutput>();
  const options = { timeout: SMI_TIMEOUT_MS, maxBuffer: SMI_BYTES, killSignal: 'SIGKILL' } as const;
  try {
    execFile('nvidia-smi', [...args], options, (error, stdout, stderr) => {
      const code = error === null ? 0 : error.code;
      const exitCode = typeof code === 'number' ? code : null;
      resolve({ exitCode, stdout, stderr, ...(code === MISSING ? { missing: true } : {}) });
    });
  } catch {
    // Some failures (no memory, a program that is being replaced) are thrown where others are told.
    resolve(NO_OUTPUT);
  }
  return promise;
}
