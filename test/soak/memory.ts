// The memory of processes over a soak: what is resident, as the system tells, and what is left after all garbage has been
// collected (gc-on-signal.ts), each with the requests completed by then.

import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { MemorySample } from './slope.ts';

export interface Watched {
  readonly name: string;
  readonly pid: number;
}

/** Of one life of a process. */
export interface Life extends Watched {
  readonly resident: MemorySample[];
  /** After a collection: the heap in use and what it holds outside. */
  readonly live: MemorySample[];
}

const COLLECTED_WITHIN_MS = 10_000;

export class MemoryWatch {
  readonly lives = new Map<number, Life>();
  private readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Processes that are started from now on can be asked. */
  static async open(): Promise<MemoryWatch> {
    const folder = await mkdtemp(join(tmpdir(), 'spillway-soak-'));
    const probe = pathToFileURL(join(import.meta.dirname, 'gc-on-signal.ts')).href;
    process.env['SOAK_HEAP_FOLDER'] = folder;
    process.env['NODE_OPTIONS'] = `${process.env['NODE_OPTIONS'] ?? ''} --import=${probe}`.trim();
    return new MemoryWatch(folder);
  }

  async close(): Promise<void> {
    await rm(this.folder, { recursive: true });
  }

  resident(watched: readonly Watched[], requests: number): void {
    for (const each of watched) {
      const bytes = residentBytes(each.pid);
      if (bytes !== null) this.lifeOf(each).resident.push({ requests, bytes });
    }
  }

  /** One process after the other: a collection holds its process for as long as it takes. */
  async collect(watched: readonly Watched[], requests: () => number): Promise<void> {
    for (const each of watched) {
      const bytes = await this.liveBytes(each.pid);
      if (bytes !== null) this.lifeOf(each).live.push({ requests: requests(), bytes });
    }
  }

  private lifeOf({ name, pid }: Watched): Life {
    const life = this.lives.get(pid) ?? { name, pid, resident: [], live: [] };
    this.lives.set(pid, life);
    return life;
  }

  /** Null where the process does not answer: it is gone. */
  private async liveBytes(pid: number): Promise<number | null> {
    const path = join(this.folder, `${pid}.json`);
    await rm(path, { force: true });
    try {
      process.kill(pid, 'SIGWINCH');
    } catch {
      return null;
    }
    const deadline = performance.now() + COLLECTED_WITHIN_MS;
    while (performance.now() < deadline) {
      const text = await readFile(path, 'utf8').catch(() => null);
      if (text !== null) return (JSON.parse(text) as { live: number }).live;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return null;
  }
}

/** Null where the machine does not tell. */
function residentBytes(pid: number): number | null {
  try {
    const kib = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return kib === undefined ? null : Number(kib) * 1_024;
  } catch {
    return null;
  }
}
