// A configuration that changes under load, well and badly: the last good one stays until the next good one, and nobody's
// answer is cut.

import {
  mkdtempSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseFleet } from '../../shared/config/load.ts';
import { startReload, type Reloader } from '../../shared/config/reload.ts';
import { ConfigState } from '../../shared/config/state.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { poolOptions, routerOptions } from '../e2e/shell-harness.ts';
import { until } from '../e2e/until.ts';
import { MODEL, startSmallRegion, type SmallRegion } from './small-region.ts';

const holding = (ms: number): string => `region: a\nrouter: { routing: { holdMs: ${ms} } }\n`;
const parse = (text: string) =>
  parseFleet({ file: 'fleet.yaml', text, environment: {}, overlays: [] });

describe('a file that is watched', () => {
  let folder = '';
  let file = '';
  let reloader: Reloader;
  const state = new ConfigState();
  const applied: number[] = [];
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'spillway-reloads-'));
    file = join(folder, 'fleet.yaml');
    writeFileSync(file, holding(60));
    const first = parse(holding(60));
    if (!first.ok) throw new Error(first.error);
    reloader = startReload({
      ...{ file, role: 'router', running: first.config, text: first.text, parse, state },
      apply: (config) => applied.push(config.router.routing.holdMs),
      told: () => undefined,
      timers: systemTimers,
      ...{ settleMs: 20, pollMs: 50 },
    });
  });
  afterAll(() => {
    reloader.close();
    rmSync(folder, { recursive: true });
  });

  /** Written as it should be; the good file heals what was before it. */
  async function heals(ms: number): Promise<void> {
    writeFileSync(`${file}.new`, holding(ms));
    renameSync(`${file}.new`, file);
    await until(() => applied.at(-1) === ms && state.view().lastReloadOk);
    expect(state.view().lastError).toBeNull();
  }

  const replaced = (make: (at: string) => void): void => {
    unlinkSync(file);
    make(file);
  };
  const attacks: [string, () => void, RegExp][] = [
    ['cut off', () => writeFileSync(file, 'router: { routing: { holdMs: 6'), /fleet\.yaml:1:/],
    ['emptied', () => writeFileSync(file, ''), /is empty/],
    ['no text', () => writeFileSync(file, Buffer.from([0x72, 0xff, 0xfe])), /is no UTF-8 text/],
    ['a bomb', () => writeFileSync(file, '['.repeat(500_000)), /nested deeper/],
    ['an endless alias', () => writeFileSync(file, 'region: &a [*a]'), /stands inside of/],
    ['an alias of nothing', () => writeFileSync(file, 'region: *a'), /nothing is anchored/],
    ['2 MiB', () => writeFileSync(file, '# '.repeat(1_048_577)), /is larger than/],
    [
      'full of unknown keys',
      () => writeFileSync(file, unknownKeys(10_000)),
      /and \d+ more problems/,
    ],
    ['gone', () => unlinkSync(file), /cannot be read/],
    ['a folder', () => replaced(mkdirSync), /is a directory/],
    ['a link to nowhere', () => replaced((at) => symlinkSync('nowhere', at)), /ENOENT/],
  ];

  test.each(attacks)('and is %s changes nothing, says why, and heals', async (_, attack, why) => {
    const { generation } = state.view();
    const before = applied.length;
    attack();
    await until(() => !state.view().lastReloadOk);
    expect(state.view()).toMatchObject({ generation, lastReloadOk: false });
    expect(state.view().lastError).toMatch(why);
    expect((state.view().lastError ?? '').length).toBeLessThan(64 * 1024);
    expect(applied).toHaveLength(before);
    rmSync(file, { recursive: true, force: true });
    await heals(61 + before);
  });

  test('and changes ten times at once ends as it was left', async () => {
    for (let at = 0; at < 10; at += 1) writeFileSync(file, holding(500 + at));
    await until(() => applied.at(-1) === 509);
    expect(state.view()).toMatchObject({ lastReloadOk: true });
  });

  test('and is written piece by piece is never taken as half of it', async () => {
    const whole = `${holding(700)}models:\n  m: { pool: default }\n`;
    const taken = applied.length;
    for (let length = 1; length <= whole.length; length += 1) {
      writeFileSync(file, whole.slice(0, length));
    }
    await until(() => applied.at(-1) === 700);
    // Beginnings that stood for less than the time to settle were not even looked at.
    expect(applied.slice(taken).every((ms) => ms === 700)).toBe(true);
  });
});

describe('a pool that goes', () => {
  let region: SmallRegion;
  beforeAll(async () => {
    region = await startSmallRegion({ settings: { holdMs: 1 } });
  });
  afterAll(() => region.close());

  const client = (): OpenAI =>
    new OpenAI({
      baseURL: `http://127.0.0.1:${region.clientsPort}/v1`,
      apiKey: 'k',
      maxRetries: 0,
    });
  const stream = (tokens: number) =>
    client().chat.completions.create({
      model: MODEL,
      messages: [{ role: 'user', content: 'hello' }],
      max_tokens: tokens,
      stream: true,
    });
  const reloadable = (id: string) => routerOptions({ pool: poolOptions({ id }) }).reloadable;

  test('under load lets its streams end, refuses what comes, sends its agents away, and comes back', async () => {
    const streams = await Promise.all([stream(400), stream(400), stream(400)]);
    expect(region.router.status().leases).toBe(3);
    region.router.reload(reloadable('renamed'));
    const ended = await Promise.all(
      streams.map(async (parts) => {
        let last: string | null = null;
        for await (const part of parts) last = part.choices[0]?.finish_reason ?? last;
        return last;
      }),
    );
    expect(ended).toEqual(['length', 'length', 'length']);
    await expect(stream(1)).rejects.toMatchObject({
      status: expect.toBeOneOf([404, 503]) as number,
    });
    await until(() => region.router.status().links === 0);
    await until(() => region.router.status().leases === 0);
    expect(region.router.status()).toMatchObject({ openRequests: 0 });
    expect(await region.value('link_ends_total{reason="unknown_pool"}')).toBeGreaterThan(0);

    region.router.reload(reloadable('default'));
    await until(() => region.router.status().pools[0]?.ready === 1, { timeoutMs: 25_000 });
    for await (const part of await stream(1)) expect(part.model).toBe(MODEL);
    await until(() => region.router.status().leases === 0);
    expect(region.lines.filter(({ msg }) => msg === 'bug')).toEqual([]);
  });
});

function unknownKeys(count: number): string {
  return Array.from({ length: count }, (_, at) => `k${at}: 1`).join('\n');
}
