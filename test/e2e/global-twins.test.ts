// A region of two routers whose tenant has no other: each is reached at an address of its own, and one of them is lost in each
// way that a router can be.

import OpenAI from 'openai';
import { afterEach, describe, expect, test } from 'vitest';
import type { TenantFacts } from '../../router/global/events.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { MODEL, ScriptedRegion, startTier, type GlobalTier } from './global-tier.ts';
import { chunk, streamHead, streamOf } from './scripted-engine.ts';
import { captureLog } from './shell-harness.ts';
import { until } from './until.ts';

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).toReversed()) await each.close();
});

const BOUND: TenantFacts = {
  residency: { allow: ['home' as RegionId], fallback: [] },
  ...{ saltGroup: 'default', models: null, certifications: [], tier: null },
};

/** `default` may be served at home alone, by two routers; another region is there all the same. */
async function twins() {
  const second = await ScriptedRegion.open('home');
  const otherBaseUrls = [`http://127.0.0.1:${second.port}`];
  const first = await ScriptedRegion.open('home', { otherBaseUrls });
  const far = await ScriptedRegion.open('far');
  first.routers = 2;
  second.routers = 2;
  const tenants = new Map([['default', BOUND]]);
  const tier = await startTier([first, far], { reloadable: { tenants } });
  const log = captureLog().log;
  const runtime = { clock: systemClock, timers: systemTimers, random: seededRandom(2), log };
  second.dial(tier.router.linksPort, runtime);
  await until(() => tier.router.status().regions[0]?.links.length === 2);
  open.push(second, tier);
  return { first, second, far, tier };
}

async function ask(tier: GlobalTier): Promise<string> {
  const client = new OpenAI({ baseURL: `${tier.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const stream = await client.chat.completions.create({
    ...{ model: MODEL, stream: true, messages: [{ role: 'user', content: `${Math.random()}` }] },
  });
  let text = '';
  for await (const part of stream) text += part.choices[0]?.delta.content ?? '';
  return text;
}

const many = (tier: GlobalTier, count: number) =>
  Promise.all(Array.from({ length: count }, () => ask(tier)));

describe('a region of two routers', () => {
  test('is asked through both of them', async () => {
    const { first, second, far, tier } = await twins();
    expect(new Set(await many(tier, 10))).toEqual(new Set(['hello there']));
    expect(first.told.length + second.told.length).toBe(10);
    expect(Math.min(first.told.length, second.told.length)).toBeGreaterThan(0);
    expect(far.told).toEqual([]);
  });

  test('that loses one before it has answered serves all that it had through the other', async () => {
    const { first, second, far, tier } = await twins();
    first.script = (_received, response) => {
      streamHead(response);
      response.write(': keep-alive\n\n');
    };
    const asked = many(tier, 12);
    await until(() => first.told.length + second.told.length === 12);
    expect(first.told.length).toBeGreaterThan(0);
    // It dies: what it had breaks off, and new connections are refused.
    await first.close();
    expect(new Set(await asked)).toEqual(new Set(['hello there']));
    expect(new Set(await many(tier, 6))).toEqual(new Set(['hello there']));
    expect(far.told).toEqual([]);
    expect(tier.router.status().regions[0]?.breaker).toBe('closed');
  });

  test('one of which breaks off each answer before it has begun serves all through the other', async () => {
    const { first, second, far, tier } = await twins();
    first.script = (_received, response) => void response.destroy();
    expect(new Set(await many(tier, 12))).toEqual(new Set(['hello there']));
    first.script = streamOf('hello', ' there');
    await until(async () => {
      const before = first.told.length;
      await many(tier, 4);
      return first.told.length > before;
    });
    expect(second.told.length).toBeGreaterThan(0);
    expect(far.told).toEqual([]);
  });

  test('both of which break off is asked twice for a request, and never another region', async () => {
    const { first, second, far, tier } = await twins();
    for (const each of [first, second])
      each.script = (_received, response) => void response.destroy();
    await expect(ask(tier)).rejects.toThrow(/502|failed/);
    expect(first.told.length + second.told.length).toBe(2);
    expect(far.told).toEqual([]);
  });

  test('does not repeat what has begun: an answer that breaks off in the midst says so', async () => {
    const { first, second, tier } = await twins();
    for (const each of [first, second]) {
      each.script = (_received, response) => {
        streamHead(response);
        response.write(chunk('half'), () => response.destroy());
      };
    }
    await expect(ask(tier)).rejects.toThrow();
    expect(first.told.length + second.told.length).toBe(1);
  });
});
