// A global router before regions whose links and ways are disturbed while clients go on asking: late, lossy, cut in two, held
// back by a hop, gone whole. Each region is reached through one proxy, and links through another.

import type { ServerResponse } from 'node:http';
import OpenAI from 'openai';
import { afterEach, describe, expect, test } from 'vitest';
import type { TenantFacts } from '../../router/global/events.ts';
import type { GlobalReloadable, RegionOptions } from '../../router/global/options.ts';
import { GLOBAL_DEFAULTS } from '../../shared/model/global-settings.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import { MODEL, ScriptedRegion, startTier, type GlobalTier } from './global-tier.ts';
import { LinkProxy, type LinkTrouble } from './link-proxy.ts';
import { chunk, DONE, statusOf, streamHead, streamOf, type Script } from './scripted-engine.ts';
import { until } from './until.ts';

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).toReversed()) await each.close();
});

/** A region behind two proxies: of its link, and of its tier listener. */
interface Far {
  readonly region: ScriptedRegion;
  readonly link: LinkProxy;
  readonly way: LinkProxy;
  set(trouble: LinkTrouble): void;
}

type Changes = Parameters<typeof startTier>[1] & {
  readonly rollouts?: readonly ('active' | 'failover')[];
};

/** `near` serves everything without trouble: the other one is kept for failover, unless `rollouts` says otherwise. */
async function two({ rollouts = ['active', 'failover'], ...changes }: Changes = {}, late = 0) {
  const behind = async (id: string, k: number): Promise<Far> => {
    let region: ScriptedRegion | null = null;
    const way = await LinkProxy.open(() => region?.port ?? 0);
    const link = await LinkProxy.open(() => region?.linksPort ?? 0);
    const rollout = rollouts[k] ?? 'active';
    region = await ScriptedRegion.open(id, { baseUrl: `http://127.0.0.1:${way.port}`, rollout });
    region.linkPort = link.port;
    const reports = setInterval(() => region?.report(), 100);
    open.push({
      async close() {
        clearInterval(reports);
        await Promise.all([way.close(), link.close()]);
      },
    });
    const set = (trouble: LinkTrouble): void => [way, link].forEach((each) => each.set(trouble));
    return { region, link, way, set };
  };
  const near = await behind('near', 0);
  const far = await behind('far', 1);
  if (late > 0) far.set({ kind: 'late', ms: late });
  const tier = await startTier([near.region, far.region], changes);
  open.push(tier);
  return { near, far, tier };
}

interface Asked {
  readonly region: string | null;
  readonly text: string;
  readonly error: string | null;
}

async function ask(tier: GlobalTier): Promise<Asked> {
  const client = new OpenAI({ baseURL: `${tier.url}/v1`, apiKey: 'none', maxRetries: 0 });
  let region: string | null = null;
  let text = '';
  try {
    const { data, response } = await client.chat.completions
      .create({
        ...{ model: MODEL, stream: true },
        messages: [{ role: 'user', content: `say something, ${Math.random()}` }],
      })
      .withResponse();
    region = response.headers.get('x-spillway-region');
    for await (const part of data) text += part.choices[0]?.delta.content ?? '';
    return { region, text, error: null };
  } catch (error) {
    return { region, text, error: String(error) };
  }
}

/** Clients that ask one after the other until they are told to stop. */
const CLIENTS = 4;
const PAUSE_MS = 5;

function load(tier: GlobalTier) {
  const asked: Asked[] = [];
  let running = true;
  const all = Array.from({ length: CLIENTS }, async () => {
    while (running) {
      asked.push(await ask(tier));
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  });
  return {
    asked,
    /** Until that many in a row were served by the region. */
    async served(region: string, times = 8): Promise<void> {
      await until(
        () => asked.slice(-times).filter((one) => one.region === region).length >= times,
        {
          says: () => JSON.stringify(asked.slice(-times)),
        },
      );
    },
    async stop(): Promise<Asked[]> {
      running = false;
      await Promise.all(all);
      return asked;
    },
  };
}

const failed = (asked: readonly Asked[]) =>
  asked.filter(({ error, text }) => error !== null || text !== 'hello there');

const seen = (tier: GlobalTier, id: string) =>
  tier.router.status().regions.find(({ region }) => region === id);

describe('links and ways between the tiers', () => {
  test('that are late make a region far: home is the other one', async () => {
    const { near, far, tier } = await two({ rollouts: ['active', 'active'] }, 60);
    expect(seen(tier, 'far')?.rttMs).toBeGreaterThanOrEqual(120);
    for (let k = 0; k < 5; k += 1) expect(await ask(tier)).toMatchObject({ region: 'near' });
    expect([near.region.told.length, far.region.told.length]).toEqual([5, 0]);
    // Control: where only it is left, it serves, as late as it is.
    near.set({ kind: 'cut' });
    await until(async () => (await ask(tier)).region === 'far');
  });

  test('that lose every fifth piece cost time, no answer, and nothing is sent twice', async () => {
    const { near, far, tier } = await two();
    near.set({ kind: 'lossy', nth: 5, ms: 60 });
    const busy = load(tier);
    await until(() => busy.asked.length >= 60);
    const asked = await busy.stop();
    expect(failed(asked)).toEqual([]);
    expect([near.region.told.length, far.region.told.length]).toEqual([asked.length, 0]);
    expect(seen(tier, 'near')).toMatchObject({ seen: true, breaker: 'closed' });
  });

  test('that flap: what is asked goes on, since requests take another way than reports', async () => {
    const { near, far, tier } = await two();
    const busy = load(tier);
    for (let flap = 0; flap < 3; flap += 1) {
      near.link.set({ kind: 'cut' });
      await until(() => seen(tier, 'near')?.links.length === 0);
      near.link.set({ kind: 'none' });
      await until(() => seen(tier, 'near')?.links.length === 1);
    }
    const asked = await busy.stop();
    expect(failed(asked)).toEqual([]);
    expect([near.region.told.length, far.region.told.length]).toEqual([asked.length, 0]);
  });

  test('that are parted, reports alone: served there for the grace, then elsewhere, and again there; nobody notices', async () => {
    const settings = { ...GLOBAL_DEFAULTS, staleGraceMs: 600 };
    const { near, far, tier } = await two({ reloadable: { settings } });
    const busy = load(tier);
    await busy.served('near');
    near.link.set({ kind: 'hole' });
    await busy.served('near');
    await busy.served('far');
    expect(seen(tier, 'near')?.seen).toBe(false);
    near.link.set({ kind: 'none' });
    await busy.served('near');
    const asked = await busy.stop();
    expect(failed(asked)).toEqual([]);
    expect(near.region.told.length + far.region.told.length).toBe(asked.length);
  });
});

const WHOLE = streamOf('hello', ' there');
const HOLDS: Script = (_received, response) => {
  streamHead(response);
  response.write(': keep-alive\n\n');
};

describe('a region that is cut off whole', () => {
  // Refused, or nothing comes through and nobody says so.
  test.each(['cut', 'hole'] as const)(
    'under load (%s) costs no client an error before its first token',
    async (kind) => {
      const settings = {
        ...GLOBAL_DEFAULTS,
        ...{ staleGraceMs: 1_000, firstTokenBaseMs: 500, firstTokenExtendWindowMs: 0 },
        ...{ stallMinMs: 500, breakerOpenMs: 300 },
      };
      const { near, far, tier } = await two({ reloadable: { settings } });
      const { script } = near.region;
      const begun: ServerResponse[] = [];
      near.region.script = (_received, response) => {
        streamHead(response);
        response.write(chunk('half'));
        begun.push(response);
      };
      const halves = Array.from({ length: 3 }, () => ask(tier));
      await until(() => begun.length === 3);
      near.region.script = HOLDS;
      const waiting = Array.from({ length: 12 }, () => ask(tier));
      await until(() => near.region.told.length === 15);
      near.region.script = script;
      near.set({ kind });
      const busy = load(tier);
      await busy.served('far');
      expect(failed(await Promise.all(waiting))).toEqual([]);
      // What had begun says that it is not whole.
      for (const half of await Promise.all(halves)) {
        expect(half).toMatchObject({ text: 'half', error: expect.stringContaining('incomplete') });
      }
      near.set({ kind: 'none' });
      await busy.served('near');
      expect(failed(await busy.stop())).toEqual([]);
      expect(far.region.refused).toEqual([]);
    },
  );
});

describe('a region that stands still, its connections open', () => {
  test('is seen by its silence: what it holds and what comes is answered elsewhere, long before any time-out', async () => {
    const settings = { ...GLOBAL_DEFAULTS, reportIntervalMs: 250, breakerOpenMs: 200 };
    const { near, far, tier } = await two({ reloadable: { settings } });
    const { script } = near.region;
    expect(await ask(tier)).toMatchObject({ region: 'near' });
    near.region.script = HOLDS;
    const held = Array.from({ length: 8 }, () => ask(tier));
    await until(() => near.region.told.length === 9);
    near.set({ kind: 'hole' });
    for (const answer of await Promise.all(held)) {
      expect(answer).toEqual({ region: 'far', text: 'hello there', error: null });
    }
    const busy = load(tier);
    await busy.served('far');
    // By nothing else was it found: no first token was late by its deadline, and its report was young enough.
    const causes = Object.keys(await tier.metric('retries_total'));
    expect(causes).toContain('region="far",pool="default",cause="region_silent"');
    expect(causes.filter((cause) => cause.includes('first_token_timeout'))).toEqual([]);
    expect(tier.lines.some(({ msg, region }) => msg === 'region_silent' && region === 'near')).toBe(
      true,
    );
    near.region.script = script;
    near.set({ kind: 'none' });
    await busy.served('near');
    expect(failed(await busy.stop())).toEqual([]);
    expect(tier.lines.some(({ msg, region }) => msg === 'region_heard' && region === 'near')).toBe(
      true,
    );
    expect(far.region.refused).toEqual([]);
  });

  test('but for its reports is used as before', async () => {
    const settings = { ...GLOBAL_DEFAULTS, reportIntervalMs: 250 };
    const { near, far, tier } = await two({ reloadable: { settings } });
    const busy = load(tier);
    await busy.served('near');
    near.link.set({ kind: 'hole' });
    await until(() => (seen(tier, 'near')?.links[0]?.reportAgoMs ?? 0) > 2_000);
    const asked = await busy.stop();
    expect(failed(asked)).toEqual([]);
    expect([near.region.told.length, far.region.told.length]).toEqual([asked.length, 0]);
    expect(seen(tier, 'near')).toMatchObject({ seen: true, silent: false });
  });
});

describe('a region that answers probes', () => {
  const PROBES = { intervalMs: 300, timeoutMs: 5_000, gapMs: 1_000 };
  const PIECES = 12;

  const probesGood =
    (others: Script): Script =>
    (received, response) =>
      received.body.includes('Count from') ? streamed(response) : others(received, response);

  function streamed(response: ServerResponse, k = 0): void {
    if (k === 0) {
      response.writeHead(200, {
        ...{ 'content-type': 'text/event-stream', 'server-timing': 'ttft;dur=5' },
      });
    }
    if (k === PIECES) return void response.end(DONE);
    response.write(chunk('one '));
    setTimeout(() => streamed(response, k + 1), 40);
  }

  test('while it refuses all else is given the time that it asks for, and its good probes cut nothing short', async () => {
    const settings = { ...GLOBAL_DEFAULTS, queueMaxWaitMs: 200 };
    const { near, far, tier } = await two({ reloadable: { settings, probes: PROBES } });
    near.region.script = probesGood(statusOf(429, '{}', { 'retry-after': '60' }));
    const first = await ask(tier);
    expect(first.error).toMatch(/429/);
    const refused = near.region.told.length;
    await until(() => seen(tier, 'near')?.probe?.kind === 'good');
    expect((await ask(tier)).error).toMatch(/429/);
    // It was not asked again, and did not drive its load into a neighbour that gave no credit.
    const asked = near.region.told.filter(({ context }) => context.tenant !== 'spillway-probe');
    expect(asked).toHaveLength(refused);
    expect(far.region.told.every(({ context }) => context.tenant === 'spillway-probe')).toBe(true);
  });

  test('while its users starve is left to one of them at a time, however good its probes are', async () => {
    const settings = {
      ...GLOBAL_DEFAULTS,
      ...{ firstTokenBaseMs: 500, firstTokenExtendWindowMs: 0, breakerOpenMs: 100 },
    };
    const { near, tier } = await two({ reloadable: { settings, probes: PROBES } });
    let inside = 0;
    let most = 0;
    near.region.script = probesGood((received, response) => {
      inside += 1;
      most = Math.max(most, inside);
      response.once('close', () => (inside -= 1));
      return HOLDS(received, response);
    });
    const probes = () =>
      near.region.told.filter(({ context }) => context.tenant === 'spillway-probe').length;
    await until(() => seen(tier, 'near')?.probe?.kind === 'good');
    const busy = load(tier);
    await until(() => seen(tier, 'near')?.breaker !== 'closed' && inside === 0);
    expect(most).toBeGreaterThan(1);
    most = 0;
    const before = probes();
    await until(() => probes() >= before + 4 && most > 0);
    expect(most).toBe(1);
    near.region.script = WHOLE;
    await busy.served('near');
    expect(failed(await busy.stop())).toEqual([]);
  });

  test('through a hop that holds streams back is found by them: status, metric, log', async () => {
    const { near, far, tier } = await two({ reloadable: { probes: PROBES } });
    const good = probesGood(statusOf(500, '{}'));
    near.region.script = good;
    far.region.script = good;
    near.way.set({ kind: 'held', quietMs: 150 });
    const buffered = async () => tier.metric('region_probe_buffered');
    await until(async () => Object.keys(await buffered()).length === 2);
    expect(await buffered()).toEqual({ 'region="near"': 1, 'region="far"': 0 });
    expect(tier.lines.filter(({ msg }) => msg === 'streams_held_back')).toMatchObject([
      { region: 'near' },
    ]);
    near.way.set({ kind: 'none' });
    await until(async () => (await buffered())['region="near"'] === 0);
  });
});

const BOUND_TO_FAR: TenantFacts = {
  residency: { allow: ['far' as RegionId], fallback: [] },
  ...{ saltGroup: 'default', models: null, certifications: [], tier: null },
};

describe('the rollout of a region, changed live', () => {
  test('counts for the next request, and calls back what nobody has seen anything of', async () => {
    const { near, far, tier } = await two();
    const set = (...modes: readonly ('off' | 'failover' | 'active')[]): void => {
      const regions = [near, far].map(({ region }, k) => ({
        ...region.options,
        rollout: modes[k] ?? 'off',
      }));
      tier.router.reload({ ...tier.options.reloadable, regions });
    };
    const { script } = near.region;
    expect(await ask(tier)).toMatchObject({ region: 'near' });
    near.region.script = HOLDS;
    const waiting = ask(tier);
    await until(() => near.region.told.length === 2);
    set('off', 'failover');
    expect(await waiting).toMatchObject({ region: 'far', text: 'hello there' });
    near.region.script = script;
    set('failover', 'active');
    expect(await ask(tier)).toMatchObject({ region: 'far' });
    set('failover', 'off');
    expect(await ask(tier)).toMatchObject({ region: 'near' });
    set('off', 'off');
    expect((await ask(tier)).error).toMatch(/503|no region/i);
    set('active', 'failover');
    expect(await ask(tier)).toMatchObject({ region: 'near' });
  });

  test.each<[string, (regions: readonly RegionOptions[]) => Partial<GlobalReloadable>]>([
    ['may be served there no longer', () => ({ tenants: new Map([['default', BOUND_TO_FAR]]) })],
    [
      'has its region switched off',
      ([near, far]) => ({ regions: [{ ...near!, rollout: 'off' }, far!] }),
    ],
    ['has its region configured no more', ([, far]) => ({ regions: [far!] })],
  ])('lets a stream that has begun end where it is: its tenant %s', async (_, change) => {
    const { near, far, tier } = await two();
    const { script } = near.region;
    const begun: ServerResponse[] = [];
    near.region.script = (_received, response) => {
      streamHead(response);
      response.write(chunk('hello'));
      begun.push(response);
    };
    const running = ask(tier);
    await until(() => begun.length === 1);
    near.region.script = HOLDS;
    const waiting = ask(tier);
    await until(() => near.region.told.length === 2);
    near.region.script = script;
    const regions = [near.region.options, far.region.options];
    tier.router.reload({ ...tier.options.reloadable, ...change(regions) });
    // Nobody has seen anything of the other: it is called back, and answered where it may be.
    expect(await waiting).toEqual({ region: 'far', text: 'hello there', error: null });
    expect(await ask(tier)).toMatchObject({ region: 'far' });
    const [response] = begun;
    response?.end(`${chunk(' there')}${chunk('', 'stop')}${DONE}`);
    expect(await running).toEqual({ region: 'near', text: 'hello there', error: null });
    expect(near.region.told).toHaveLength(2);
  });
});

test('a region whose secret is taken out loses its links; one that has two loses none for either', async () => {
  const { near, far, tier } = await two();
  const links = () => tier.router.status().regions.map((region) => region.links.length);
  await until(() => links().join() === '1,1');
  const load = (...nears: readonly string[]): void => {
    const regions = [{ ...near.region.options, linkSecrets: nears }, far.region.options];
    tier.router.reload({ ...tier.options.reloadable, regions });
  };
  load('link-secret-of-near', 'the-next-secret-of-near');
  expect(links()).toEqual([1, 1]);
  load('the-next-secret-of-near');
  await until(() => links().join() === '0,1');
  expect(tier.lines.filter(({ msg }) => msg === 'links ended: secret taken out')).toHaveLength(1);
});
