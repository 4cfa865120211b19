import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { ManualTime } from '../shared/runtime/manual-time.ts';
import type { ProcessEvidence } from './events.ts';
import type { ListedProcess } from './evidence-list.ts';
import { ProcessWitness } from './evidence.ts';

const folders: string[] = [];

afterEach(async () => {
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true });
});

const SERVE = { pid: 7, command: 'python -m vllm serve /models/tiny --port 8001' };

function witness(
  processes: () => readonly ListedProcess[],
  overrides: { url?: string; lives?: ReadonlySet<number> } = {},
): { seen: ProcessWitness; time: ManualTime; lists: () => number } {
  const time = new ManualTime();
  let lists = 0;
  const seen = new ProcessWitness({
    url: overrides.url ?? 'http://127.0.0.1:8001',
    pidFile: null,
    unit: null,
    log: null,
    clock: time,
    listProcesses: () => {
      lists += 1;
      return Promise.resolve().then(processes);
    },
    showUnit: () => Promise.reject(new Error('no systemd here')),
    processLives: (pid) => Promise.resolve(overrides.lives?.has(pid) ?? true),
  });
  return { seen, time, lists: () => lists };
}

async function settles(seen: ProcessWitness, to: ProcessEvidence['state']): Promise<void> {
  await vi.waitFor(async () => expect((await seen.evidence('refuses')).state).toBe(to));
}

describe('evidence from the process list', () => {
  it('is alive while a process names the port of the engine', async () => {
    const { seen } = witness(() => [SERVE]);
    expect((await seen.evidence('refuses')).state).toBe('unknown');
    await settles(seen, 'alive');
  });

  it('is unknown where no list ever had the process: it may be in another container', async () => {
    const others = [
      { pid: 1, command: 'vllm serve --port 8002' },
      {
        pid: 4,
        command: 'node /opt/spillway/bin/main.ts agent --engine-log /var/log/vllm --port 8001',
      },
      { pid: 2, command: 'nginx --port 8001' },
      { pid: 3, command: 'vllm serve' },
    ];
    const { seen, time, lists } = witness(() => others);
    for (let look = 0; look < 3; look += 1) {
      expect((await seen.evidence('refuses')).state).toBe('unknown');
      await Promise.resolve();
      time.advance(10_001);
    }
    expect(lists()).toBeGreaterThan(1);
  });

  it('is absent once a process that a list had is gone', async () => {
    const processes: ListedProcess[] = [SERVE];
    const { seen, time } = witness(() => processes);
    expect((await seen.evidence('answers')).state).toBe('alive');
    await settles(seen, 'alive');
    processes.pop();
    time.advance(10_001);
    await settles(seen, 'absent');
  });

  it('is absent at once when the process that a list had is gone, and found again soon', async () => {
    const processes: ListedProcess[] = [SERVE];
    const lives = new Set([7, 8]);
    const { seen, time, lists } = witness(() => processes, { lives });
    await settles(seen, 'alive');
    lives.delete(7);
    processes.pop();
    expect((await seen.evidence('refuses')).state).toBe('absent');
    await vi.waitFor(() => expect(lists()).toBe(2));
    processes.push({ ...SERVE, pid: 8 });
    time.advance(2_001);
    await settles(seen, 'alive');
  });

  it('takes the default port where the command names none', async () => {
    const { seen } = witness(() => [{ pid: 3, command: 'vllm serve /m' }], {
      url: 'http://localhost:8000',
    });
    await settles(seen, 'alive');
  });

  it('lists at most every 10 s, and not at all for an engine elsewhere', async () => {
    const here = witness(() => []);
    for (let look = 0; look < 20; look += 1) await here.seen.evidence('refuses');
    expect(here.lists()).toBe(1);
    const elsewhere = witness(() => [SERVE], { url: 'http://192.0.2.7:8001' });
    expect((await elsewhere.seen.evidence('refuses')).state).toBe('unknown');
    expect(elsewhere.lists()).toBe(0);
  });

  it('survives a machine that cannot list', async () => {
    const { seen } = witness(() => {
      throw new Error('no ps here');
    });
    expect((await seen.evidence('refuses')).state).toBe('unknown');
    expect((await seen.evidence('refuses')).state).toBe('unknown');
  });
});

describe('a pid file', () => {
  async function beside(
    text: string | null,
    lives: ReadonlySet<number>,
  ): Promise<{ readonly seen: ProcessWitness; readonly write: (text: string) => Promise<void> }> {
    const folder = await mkdtemp(join(tmpdir(), 'spillway-pid-'));
    folders.push(folder);
    const pidFile = join(folder, 'engine.pid');
    if (text !== null) await writeFile(pidFile, text);
    const seen = new ProcessWitness({
      url: 'http://192.0.2.7:8001',
      pidFile,
      unit: null,
      log: null,
      clock: new ManualTime(),
      listProcesses: () => Promise.reject(new Error('not asked')),
      showUnit: () => Promise.reject(new Error('not asked')),
      processLives: (pid) => Promise.resolve(lives.has(pid)),
    });
    return { seen, write: (next) => writeFile(pidFile, next) };
  }

  it('names a living process or a gone one, at once', async () => {
    const lives = new Set([7]);
    const { seen } = await beside('7\n', lives);
    expect(await seen.evidence('refuses')).toMatchObject({
      state: 'alive',
      process: { source: 'pidFile', pid: 7 },
    });
    lives.clear();
    expect((await seen.evidence('refuses')).state).toBe('absent');
  });

  it.each([[null], [''], ['many\n'], ['-1\n'], ['0\n']])(
    'that says %j names none',
    async (text) => {
      const { seen } = await beside(text, new Set([7]));
      expect(await seen.evidence('refuses')).toMatchObject({ state: 'absent', process: null });
    },
  );

  it('that denied a port that answered is not believed until it names a living process', async () => {
    const { seen, write } = await beside(null, new Set([7]));
    expect((await seen.evidence('answers')).state).toBe('alive');
    expect((await seen.evidence('refuses')).state).toBe('unknown');
    await write('7\n');
    expect((await seen.evidence('refuses')).state).toBe('alive');
    await write('8\n');
    expect((await seen.evidence('refuses')).state).toBe('absent');
  });
});
