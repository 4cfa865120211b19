import {
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemTimers, type Timers } from '../runtime/timers.ts';
import { parseFleet } from './load.ts';
import { startReload, type Reloader } from './reload.ts';
import type { FleetConfig } from './schema.ts';
import { ConfigState, type ConfigView } from './state.ts';

interface Watched {
  readonly reloader: Reloader;
  readonly state: ConfigState;
  readonly applied: FleetConfig[];
  /** The next outcome that has not been taken yet. */
  next(): Promise<ConfigView>;
}

let folder = '';
let closing: (() => void)[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'spillway-reload-'));
  closing = [];
});

afterEach(() => {
  for (const close of closing) close();
  rmSync(folder, { recursive: true });
});

function parse(text: string) {
  return parseFleet({ file: 'fleet.yaml', text, environment: {}, overlays: [] });
}

function watching(
  file: string,
  text: string,
  {
    pollMs = 60_000,
    applies,
    timers = systemTimers,
  }: { pollMs?: number; applies?: () => Promise<void>; timers?: Timers } = {},
): Watched {
  const first = parse(text);
  if (!first.ok) throw new Error(first.error);
  const state = new ConfigState();
  const applied: FleetConfig[] = [];
  const outcomes: ConfigView[] = [];
  const waiting: ((view: ConfigView) => void)[] = [];
  const reloader = startReload({
    file,
    role: 'router',
    running: first.config,
    text,
    parse,
    apply: (config) => {
      applied.push(config);
      return applies?.();
    },
    state,
    told: (view) => {
      const waiter = waiting.shift();
      if (waiter === undefined) outcomes.push(view);
      else waiter(view);
    },
    timers,
    settleMs: 20,
    pollMs,
  });
  closing.push(() => reloader.close());
  return {
    reloader,
    state,
    applied,
    next() {
      const ready = outcomes.shift();
      if (ready !== undefined) return Promise.resolve(ready);
      return new Promise((resolve) => waiting.push(resolve));
    },
  };
}

const holding = (ms: number): string => `router: { routing: { holdMs: ${ms} } }\n`;

describe('reload', () => {
  it('waits for what takes time to apply, and looks at the file again afterwards', async () => {
    const file = join(folder, 'fleet.yaml');
    writeFileSync(file, holding(60));
    const gates: PromiseWithResolvers<void>[] = [];
    const applies = (): Promise<void> => {
      const gate = Promise.withResolvers<void>();
      gates.push(gate);
      return gate.promise;
    };
    const watched = watching(file, holding(60), { applies });
    writeFileSync(file, holding(80));
    watched.reloader.reload();
    writeFileSync(file, 'router: [');
    watched.reloader.reload();
    expect(watched.state.view()).toMatchObject({ generation: 1, lastReloadOk: true });
    gates[0]?.resolve();
    expect(await watched.next()).toMatchObject({ generation: 2, lastReloadOk: true });
    expect(await watched.next()).toMatchObject({ generation: 2, lastReloadOk: false });
    writeFileSync(file, holding(90));
    watched.reloader.reload();
    gates[1]?.reject(new Error('a worker refuses'));
    expect(await watched.next()).toMatchObject({ generation: 2, lastError: 'a worker refuses' });
  });

  it('takes nothing twice: the same content, written again, is no change', async () => {
    const file = join(folder, 'fleet.yaml');
    writeFileSync(file, holding(60));
    let looks = 0;
    const after: Timers['after'] = (ms, task) =>
      systemTimers.after(ms, () => {
        task();
        looks += 1;
      });
    const watched = watching(file, holding(60), { timers: { ...systemTimers, after } });
    writeFileSync(file, holding(60));
    await vi.waitFor(() => expect(looks).toBeGreaterThan(0), 20_000);
    writeFileSync(file, holding(80));
    await watched.next();
    expect(watched.applied.map(({ router }) => router.routing.holdMs)).toEqual([80]);
  });

  it('takes a change of the file as a whole', async () => {
    const file = join(folder, 'fleet.yaml');
    writeFileSync(file, holding(60));
    const watched = watching(file, holding(60));
    writeFileSync(file, holding(80));
    expect(await watched.next()).toEqual({
      generation: 2,
      lastReloadOk: true,
      lastError: null,
      restartFields: [],
    });
    expect(watched.applied.map((config) => config.router.routing.holdMs)).toEqual([80]);
  });

  it('takes a rename onto the file', async () => {
    const file = join(folder, 'fleet.yaml');
    writeFileSync(file, holding(60));
    const watched = watching(file, holding(60));
    writeFileSync(`${file}.new`, holding(90));
    renameSync(`${file}.new`, file);
    expect((await watched.next()).generation).toBe(2);
    expect(watched.applied[0]?.router.routing.holdMs).toBe(90);
  });

  it("takes a swap of a ConfigMap's ..data link", async () => {
    for (const [version, ms] of [
      ['..v1', 60],
      ['..v2', 70],
    ] as const) {
      mkdirSync(join(folder, version));
      writeFileSync(join(folder, version, 'fleet.yaml'), holding(ms));
    }
    symlinkSync('..v1', join(folder, '..data'));
    const file = join(folder, 'fleet.yaml');
    symlinkSync('..data/fleet.yaml', file);
    const watched = watching(file, holding(60));
    symlinkSync('..v2', join(folder, '..data_tmp'));
    renameSync(join(folder, '..data_tmp'), join(folder, '..data'));
    expect((await watched.next()).generation).toBe(2);
    expect(watched.applied[0]?.router.routing.holdMs).toBe(70);
  });

  it('sees a change behind a link to another folder by looking at the content', async () => {
    mkdirSync(join(folder, 'elsewhere'));
    mkdirSync(join(folder, 'here'));
    const target = join(folder, 'elsewhere', 'fleet.yaml');
    writeFileSync(target, holding(60));
    const file = join(folder, 'here', 'fleet.yaml');
    symlinkSync(target, file);
    const watched = watching(file, holding(60), { pollMs: 20 });
    writeFileSync(target, holding(75));
    expect((await watched.next()).lastReloadOk).toBe(true);
    expect(watched.applied[0]?.router.routing.holdMs).toBe(75);
  });

  it('keeps the last good generation when a file is broken, cut off, empty or gone', async () => {
    const file = join(folder, 'fleet.yaml');
    writeFileSync(file, holding(60));
    const watched = watching(file, holding(60));
    const broken: [() => void, RegExp][] = [
      [() => writeFileSync(file, 'router: { routing: { holdMs: 6'), /fleet\.yaml:1:/],
      [() => writeFileSync(file, ''), /is empty/],
      [() => writeFileSync(file, 'router: { rooting: {} }'), /did you mean "routing"/],
      [() => unlinkSync(file), /cannot be read/],
    ];
    for (const [act, why] of broken) {
      act();
      const view = await watched.next();
      expect(view).toMatchObject({ generation: 1, lastReloadOk: false });
      expect(view.lastError).toMatch(why);
    }
    expect(watched.applied).toEqual([]);
    writeFileSync(file, holding(65));
    expect(await watched.next()).toMatchObject({
      generation: 2,
      lastReloadOk: true,
      lastError: null,
    });
  });

  it('names the fields that wait for a restart, and takes the rest', async () => {
    const file = join(folder, 'fleet.yaml');
    writeFileSync(file, holding(60));
    const watched = watching(file, holding(60));
    writeFileSync(
      file,
      'region: b\nrouter: { clients: { listen: "127.0.0.1:9" }, routing: { holdMs: 99 } }\n',
    );
    const view = await watched.next();
    expect(view.restartFields).toEqual(['region', 'router.clients.listen']);
    expect(watched.applied[0]?.router.routing.holdMs).toBe(99);
  });

  it('takes a change that came before the watch began', async () => {
    const file = join(folder, 'fleet.yaml');
    writeFileSync(file, holding(85));
    const watched = watching(file, holding(60));
    expect((await watched.next()).generation).toBe(2);
    expect(watched.applied[0]?.router.routing.holdMs).toBe(85);
  });

  it('reads the file when told to, changed or not', () => {
    const file = join(folder, 'fleet.yaml');
    writeFileSync(file, holding(60));
    const watched = watching(file, holding(60));
    watched.reloader.reload();
    expect(watched.state.view().generation).toBe(2);
  });

  it('stays as it was when the new generation cannot be swapped in', () => {
    const file = join(folder, 'fleet.yaml');
    writeFileSync(file, holding(60));
    const first = parse(holding(60));
    if (!first.ok) throw new Error(first.error);
    const state = new ConfigState();
    const reloader = startReload({
      file,
      role: 'router',
      running: first.config,
      text: first.text,
      parse,
      apply: () => {
        throw new Error('pool a cannot be removed');
      },
      state,
      told: () => undefined,
      timers: systemTimers,
    });
    reloader.reload();
    reloader.close();
    expect(state.view()).toMatchObject({
      generation: 1,
      lastReloadOk: false,
      lastError: 'pool a cannot be removed',
    });
  });
});
