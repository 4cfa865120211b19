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

  it.each([
    ['vllm serve /m --port=8000', true],
    ['python -m vllm.entrypoints.openai.api_server --model m', true],
    ['/opt/x/bin/python /opt/x/bin/vllm serve m --host 0.0.0.0', true],
    ['python serve_with_vllm.py --port 8000', true],
    ['node bin/main.ts engine-sim', true],
    // Workers of an engine at another port.
    ['VLLM::Worker_TP3', false],
    ['VLLM::EngineCore', false],
    // Who looks at an engine, or loads it, is none.
    ['less /var/log/vllm.log', false],
    ['journalctl -f -u vllm', false],
    ['vllm bench serve --port 8000', false],
    ['python benchmark_serving.py --backend vllm --port 8000', false],
  ])('%s is an engine at 8000: %j', async (command, is) => {
    const { seen, lists } = witness(() => [{ pid: 3, command }], { url: 'http://[::1]:8000' });
    await seen.evidence('refuses');
    await vi.waitFor(() => expect(lists()).toBe(1));
    await settles(seen, is ? 'alive' : 'unknown');
  });

  it('knows the usual ports of other engines, and no workers of theirs', async () => {
    const sglang = { pid: 3, command: 'python3 -m sglang.launch_server --model m' };
    const worker = { pid: 4, command: 'sglang::scheduler_TP0' };
    await settles(witness(() => [sglang], { url: 'http://127.0.0.1:30000' }).seen, 'alive');
    await settles(
      witness(() => [{ pid: 3, command: '/usr/bin/llama-server -m m.gguf' }], {
        url: 'http://127.0.0.1:8080',
      }).seen,
      'alive',
    );
    const { seen, lists } = witness(() => [worker], { url: 'http://127.0.0.1:30000' });
    await seen.evidence('refuses');
    await vi.waitFor(() => expect(lists()).toBe(1));
    expect((await seen.evidence('refuses')).state).toBe('unknown');
  });

  it('takes a shell and the engine that it started for one, until none of them lives', async () => {
    const shell = { pid: 5, command: 'sh -c vllm serve m --port 8001' };
    let processes: ListedProcess[] = [shell, SERVE];
    const lives = new Set([5, 7]);
    const { seen, time, lists } = witness(() => processes, { lives });
    await settles(seen, 'alive');
    const { process } = await seen.evidence('refuses');
    // The shell ends; the engine goes on.
    lives.delete(5);
    processes = [SERVE];
    expect(await seen.evidence('refuses')).toMatchObject({ state: 'alive', process });
    time.advance(2_001);
    await seen.evidence('refuses');
    await vi.waitFor(() => expect(lists()).toBe(2));
    expect(await seen.evidence('refuses')).toMatchObject({ state: 'alive', process });
    lives.clear();
    expect(await seen.evidence('refuses')).toMatchObject({ state: 'absent', process: null });
  });

  it('does not name a process any more that was gone before the port opened again', async () => {
    let processes: ListedProcess[] = [SERVE];
    const lives = new Set([7]);
    const { seen } = witness(() => processes, { lives });
    await settles(seen, 'alive');
    lives.clear();
    lives.add(8);
    processes = [{ ...SERVE, pid: 8 }];
    expect((await seen.evidence('answers')).process).toBeNull();
    await vi.waitFor(async () =>
      expect((await seen.evidence('answers')).process).toEqual({ source: 'list', pid: 8 }),
    );
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
