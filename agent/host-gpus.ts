// Which GPUs an engine uses: those that its process may see (CUDA_VISIBLE_DEVICES), else those on which the driver
// counts a process of its tree, else unknown, which stands for all of the machine.
//
// What was found is kept as long as the process lives: a GPU that vanishes also vanishes from the driver's lists, and
// the numbers of the others move up.

import type { GpuFacts } from './policy/gpu-presence.ts';
import { readQuietly } from './quiet-file.ts';

/** A tree of processes is followed so far. */
const MAX_PROCESSES = 256;
const ENVIRONMENT_BYTES = 256 * 1_024;
const CHILDREN_BYTES = 16 * 1_024;

export interface ProcessFacts {
  /** Value of a variable in the process's environment; null where it is not set or not to be read. */
  variable(pid: number, name: string): Promise<string | null>;
  /** The process and its descendants. */
  tree(pid: number): Promise<readonly number[]>;
}

export class GpuAssignment {
  readonly #facts: ProcessFacts;
  #pid: number | null = null;
  #visible: readonly string[] | null = null;
  readonly #used = new Set<string>();

  constructor(facts: ProcessFacts) {
    this.#facts = facts;
  }

  /** UUIDs; null where nothing tells. */
  async of(
    pid: number | null,
    gpus: readonly GpuFacts[],
    apps: ReadonlyMap<number, ReadonlySet<string>>,
  ): Promise<readonly string[] | null> {
    if (pid === null) return this.#pid === null ? null : this.#known();
    if (pid !== this.#pid) this.#startOver(pid);
    this.#visible ??= visibleGpus(await this.#facts.variable(pid, 'CUDA_VISIBLE_DEVICES'), gpus);
    if (this.#visible === null) {
      for (const each of await this.#facts.tree(pid)) {
        for (const uuid of apps.get(each) ?? []) this.#used.add(uuid);
      }
    }
    return this.#known();
  }

  #known(): readonly string[] | null {
    return this.#visible ?? (this.#used.size > 0 ? [...this.#used] : null);
  }

  #startOver(pid: number): void {
    this.#pid = pid;
    this.#visible = null;
    this.#used.clear();
  }
}

/** Numbers or UUIDs, which may be cut short; null for what names no GPU that is there (MIG instances, nothing). */
export function visibleGpus(
  value: string | null,
  gpus: readonly GpuFacts[],
): readonly string[] | null {
  const names = (value ?? '').split(',').map((name) => name.trim());
  const found = names.flatMap((name) => {
    if (name === '') return [];
    const gpu = /^\d+$/.test(name)
      ? gpus.find(({ index }) => index === Number(name))
      : gpus.find(({ uuid }) => name.startsWith('GPU-') && uuid.startsWith(name));
    return gpu === undefined ? [] : [gpu.uuid];
  });
  return found.length === 0 ? null : found;
}

/** From /proc; empty where there is none. */
export const procFacts: ProcessFacts = {
  async variable(pid, name) {
    const text = await readQuietly(`/proc/${pid}/environ`, ENVIRONMENT_BYTES);
    const entry = text?.split('\0').find((each) => each.startsWith(`${name}=`));
    return entry === undefined ? null : entry.slice(name.length + 1);
  },
  async tree(pid) {
    const tree = [pid];
    for (let at = 0; at < tree.length && tree.length < MAX_PROCESSES; at += 1) {
      const parent = tree[at] ?? pid;
      const text = await readQuietly(`/proc/${parent}/task/${parent}/children`, CHILDREN_BYTES);
      for (const child of (text ?? '').split(' ')) if (child !== '') tree.push(Number(child));
    }
    return tree.slice(0, MAX_PROCESSES);
  },
};
