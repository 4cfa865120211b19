// A global router's shell against regions whose every answer is scripted: what goes out, what comes back, and what becomes
// of a request when a region fails in each way that one can.

import type { ServerResponse } from 'node:http';
import OpenAI from 'openai';
import { request } from 'undici';
import { afterEach, describe, expect, test } from 'vitest';
import { GLOBAL_DEFAULTS } from '../../shared/model/global-settings.ts';
import { MODEL, ScriptedRegion, startTier, type GlobalTier } from './global-tier.ts';
import {
  answerOf,
  chunk,
  DONE,
  statusOf,
  streamHead,
  streamOf,
  type Script,
} from './scripted-engine.ts';
import { until } from './until.ts';

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).toReversed()) await each.close();
});

const CHAT = { model: MODEL, messages: [{ role: 'user' as const, content: 'hello' }] };

/** Home is the first: the second costs more than any round trip on this machine. */
async function two(changes: Parameters<typeof startTier>[1] = {}) {
  const home = await ScriptedRegion.open('home');
  const far = await ScriptedRegion.open('far', { rollout: 'failover' });
  const tier = await startTier([home, far], changes);
  open.push(tier);
  return { home, far, tier };
}

function sdk(tier: GlobalTier): OpenAI {
  return new OpenAI({ baseURL: `${tier.url}/v1`, apiKey: 'the key of a client', maxRetries: 0 });
}

async function textOf(tier: GlobalTier): Promise<string> {
  const stream = await sdk(tier).chat.completions.create({ ...CHAT, stream: true });
  let text = '';
  for await (const part of stream) text += part.choices[0]?.delta.content ?? '';
  return text;
}

async function post(tier: GlobalTier, body: object, headers: Record<string, string> = {}) {
  const answer = await request(`${tier.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() };
}

describe('what a region is sent', () => {
  test('is the body as it came, signed for it alone, with the trace and nothing else of the client', async () => {
    const { home, tier } = await two();
    home.script = answerOf('hello');
    const trace = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const answer = await post(tier, CHAT, {
      traceparent: trace,
      authorization: 'Bearer the key of a client',
      cookie: 'a=b',
      'x-spillway-context': 'forged',
      'x-spillway-tenant': 'somebody',
    });
    expect(answer.status).toBe(200);
    const [told] = home.told;
    expect(told?.body.toString()).toBe(JSON.stringify(CHAT));
    const { 'x-spillway-context': context, 'x-request-id': id, ...headers } = told?.headers ?? {};
    expect(context).not.toBe('forged');
    expect(id).toBe(told?.context.attempt);
    expect(headers).toEqual({
      host: expect.any(String),
      connection: 'keep-alive',
      'content-type': 'application/json',
      'content-length': String(told?.body.length),
      traceparent: trace,
    });
    expect(told?.context).toMatchObject({
      tenant: 'default',
      seq: 1,
      away: false,
      residency: null,
    });
  });

  test('asks a stream for its usage, which a client that did not ask never sees', async () => {
    const { home, tier } = await two();
    const answer = await post(tier, { ...CHAT, stream: true });
    expect(JSON.parse(home.told[0]?.body.toString() ?? '')).toEqual({
      ...CHAT,
      stream: true,
      stream_options: { include_usage: true },
    });
    expect(answer.text).toContain(DONE);
    expect(answer.text).not.toContain('prompt_tokens');
    expect(tier.lines.find(({ msg }) => msg === 'request')).toMatchObject({
      ...{
        region: 'home',
        pool: 'default',
        outcome: 'complete',
        promptTokens: 100,
        cachedTokens: 64,
      },
    });
  });
});

describe('what a client is answered', () => {
  test('names the region, and who served it there', async () => {
    const { home, tier } = await two();
    home.script = (_received, response) => {
      response.writeHead(200, {
        ...{ 'content-type': 'text/event-stream', 'x-spillway-replica': 'gpu-7:8000' },
        ...{ 'x-spillway-pool': 'default', 'x-secret-of-the-region': 'yes' },
      });
      response.end(`${chunk('hello')}${DONE}`);
    };
    const { headers } = await post(tier, { ...CHAT, stream: true });
    expect(headers).toMatchObject({
      ...{ 'x-spillway-region': 'home', 'x-spillway-replica': 'gpu-7:8000' },
      ...{ 'x-spillway-pool': 'default', 'x-spillway-attempts': '1' },
      'server-timing': expect.stringContaining('ttft'),
    });
    expect(headers['x-secret-of-the-region']).toBeUndefined();
  });

  test('explains where it asks for it', async () => {
    const { tier } = await two();
    const { headers } = await post(tier, { ...CHAT, stream: true }, { 'x-spillway-explain': '1' });
    const said = JSON.parse(String(headers['x-spillway-explain'])) as Record<string, unknown>;
    expect(said).toMatchObject({ kind: 'send', region: 'home', pool: 'default' });
    expect(said['candidates']).toMatchObject([
      { region: 'home', p: 1 },
      { region: 'far', removed: 'standby' },
    ]);
  });

  test('is told by a region what is wrong with its request, in the words of the region', async () => {
    const { home, far, tier } = await two();
    const body =
      '{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}';
    home.script = statusOf(400, body);
    const answer = await post(tier, CHAT);
    expect(answer.status).toBe(400);
    expect(JSON.parse(answer.text)).toMatchObject({ error: { message: 'too long', code: 400 } });
    expect(far.told).toHaveLength(0);
  });
});

/** Ways to fail before a data event, each of which another region makes good. */
const FAILURES: Record<string, Script> = {
  'a reset': (_received, response) => void response.destroy(),
  'a cut behind comments': (_received, response) => {
    streamHead(response);
    response.write(': keep-alive\n\n: keep-alive\n\n', () => response.destroy());
  },
  'an end behind comments': (_received, response) => {
    streamHead(response);
    response.end(`: keep-alive\n\n${DONE}`);
  },
  'an error event behind comments': (_received, response) => {
    streamHead(response);
    response.end(`: keep-alive\n\ndata: {"error":{"message":"gone","code":"upstream_failed"}}\n\n`);
  },
  'a fault (500)': statusOf(500, '{}'),
  'a page of some proxy': (_received, response) => {
    response.writeHead(200, { 'content-type': 'text/html' });
    response.end('<html>');
  },
  'a context that is refused (401)': statusOf(401, '{"error":{"code":"context_refused"}}'),
  'a certificate that is missing (403)': statusOf(403, '{}'),
  'a tenant that should not have come (421)': statusOf(
    421,
    '{"error":{"code":"region_not_allowed"}}',
  ),
};

describe('failover', () => {
  test.each(Object.keys(FAILURES))(
    'goes to another region before the first data event: %s',
    async (name) => {
      const { home, far, tier } = await two();
      home.script = FAILURES[name] ?? streamOf();
      far.script = streamOf('from ', 'afar');
      expect(await textOf(tier)).toBe('from afar');
      expect(home.told).toHaveLength(1);
      expect(far.told).toHaveLength(1);
      expect(far.told[0]?.context.attempt).toMatch(/\.2$/);
      expect(tier.lines.find(({ msg }) => msg === 'request')).toMatchObject({
        ...{ region: 'far', attempts: 2, outcome: 'complete', reason: 'failover' },
      });
    },
  );

  test('makes good all that a region takes along when it dies, however many they are', async () => {
    const { home, far, tier } = await two();
    const held: ServerResponse[] = [];
    home.script = (_received, response) => void held.push(response);
    const texts = Array.from({ length: 150 }, () => textOf(tier));
    await until(() => held.length === 150);
    for (const response of held) response.destroy();
    expect(new Set(await Promise.all(texts))).toEqual(new Set(['hello there']));
    expect(far.told).toHaveLength(150);
  });

  test('never goes anywhere after the first data event: the stream ends as an error', async () => {
    const { home, far, tier } = await two();
    home.script = (_received, response) => {
      streamHead(response);
      response.write(chunk('half'), () => response.destroy());
    };
    await expect(textOf(tier)).rejects.toThrow(/incomplete/);
    expect(far.told).toHaveLength(0);
    expect(await tier.metric('interrupted_streams_total')).toEqual({
      'region="home",pool="default",cause="reset"': 1,
    });
  });

  test('is not the answer of a region that knows us not: the client never sees its 401, 403 or 421', async () => {
    const { home, far, tier } = await two();
    home.script = statusOf(401, '{"error":{"message":"secret words","code":"context_refused"}}');
    far.script = statusOf(421, '{"error":{"message":"secret words","code":"region_not_allowed"}}');
    const answer = await post(tier, CHAT);
    expect(answer.status).toBeGreaterThanOrEqual(500);
    expect(answer.text).not.toMatch(/secret words|context_refused|region_not_allowed/);
    expect(await tier.metric('tier_refusals_total')).toEqual({
      'region="home",status="401"': 1,
      'region="far",status="421"': 1,
    });
    const said = tier.lines.filter(({ msg }) => msg === 'region_refuses_tier');
    expect(said).toMatchObject([
      { region: 'home', status: 401 },
      { region: 'far', status: 421 },
    ]);
  });

  test('does not tell clients what another server at its address does not find', async () => {
    const { home, far, tier } = await two();
    home.script = statusOf(404, '{"error":{"message":"The model `m` does not exist."}}');
    expect(await textOf(tier)).toBe('hello there');
    expect([home.told.length, far.told.length]).toEqual([1, 1]);
    expect(await tier.metric('tier_refusals_total')).toEqual({ 'region="home",status="404"': 1 });
    expect(tier.lines.filter(({ msg }) => msg === 'region_is_another_server')).toMatchObject([
      { region: 'home', status: 404, check: expect.stringContaining('baseUrl') },
    ]);
    // Control: what a router of ours does not find is the client's to know.
    home.script = statusOf(404, '{"error":{"message":"words of the region"}}', {
      'server-timing': 'total;dur=1',
    });
    const own = await post(tier, CHAT);
    expect([own.status, own.text.includes('words of the region')]).toEqual([404, true]);
  });

  test('gives the region up that shows no first token in time', async () => {
    const settings = { ...GLOBAL_DEFAULTS, firstTokenBaseMs: 100, firstTokenExtendWindowMs: 0 };
    const { home, far, tier } = await two({ reloadable: { settings } });
    let held: ServerResponse | null = null;
    home.script = (_received, response) => {
      held = response;
      streamHead(response);
      response.write(': keep-alive\n\n');
    };
    expect(await textOf(tier)).toBe('hello there');
    expect(far.told).toHaveLength(1);
    // The old attempt's socket is gone.
    await until(() => held?.destroyed === true);
  });

  test.each([429, 503, 529])(
    'a region that asks for time (%i) is given it, and then asked again',
    async (status) => {
      const settings = { ...GLOBAL_DEFAULTS, keepAliveAfterMs: 100 };
      const { home, far, tier } = await two({ reloadable: { settings } });
      const good = home.script;
      home.script = (received, response) => {
        home.script = good;
        void statusOf(status, '{}', { 'retry-after': '1' })(received, response);
      };
      const answer = await post(tier, { ...CHAT, stream: true });
      expect(answer.status).toBe(200);
      // The client was told meanwhile that somebody is there.
      expect(answer.text).toMatch(/^: keep-alive\n\n/);
      expect(answer.text).toContain(DONE);
      expect([home.told.length, far.told.length]).toEqual([2, 0]);
      expect(await tier.metric('errors_total')).not.toMatchObject({ 'code="fleet_saturated"': 1 });
    },
  );
});

describe('a region that has begun to wait with comments', () => {
  const late = (code: string): Script => {
    const event = `data: {"error":{"message":"words of the region","type":"t","code":"${code}"}}`;
    return (_received, response) => {
      streamHead(response);
      response.end(`: keep-alive\n\n${event}\n\n`);
    };
  };

  test('and has no room then is given time, as if it had said so at once', async () => {
    const { home, far, tier } = await two();
    const good = home.script;
    home.script = (received, response) => {
      home.script = good;
      void late('saturated')(received, response);
    };
    expect(await textOf(tier)).toBe('hello there');
    expect([home.told.length, far.told.length]).toEqual([2, 0]);
    expect(await tier.metric('retries_total')).toEqual({
      'region="home",pool="default",cause="backPressure"': 1,
    });
  });

  test('and finds the request at fault then says so in its own words', async () => {
    const { home, far, tier } = await two();
    home.script = late('context_length_exceeded');
    const answer = await post(tier, { ...CHAT, stream: true });
    expect(answer.status).toBe(400);
    expect(answer.text).toContain('words of the region');
    expect(far.told).toHaveLength(0);
  });

  test('and may not serve the tenant then is none of the client’s business', async () => {
    const { home, far, tier } = await two();
    home.script = late('residency_violation');
    expect(await textOf(tier)).toBe('hello there');
    expect(far.told).toHaveLength(1);
  });
});

describe('a synthetic generation through the whole path', () => {
  const PROBES = { intervalMs: 1_000, timeoutMs: 10_000, gapMs: 1_000 };
  const SAYS_EARLY = { 'content-type': 'text/event-stream', 'server-timing': 'ttft;dur=20' };
  const whole = `${Array.from({ length: 12 }, () => chunk('one ')).join('')}${DONE}`;

  test('finds that something on the way holds streams back, and says so everywhere', async () => {
    const { home, far, tier } = await two({ reloadable: { probes: PROBES } });
    // As a buffer on the way hands it on: at its end, and all of it, head included.
    home.script = (_received, response) =>
      void setTimeout(() => response.writeHead(200, SAYS_EARLY).end(whole), 600);
    far.script = (_received, response) => void response.writeHead(200, SAYS_EARLY).end(whole);
    await until(async () => {
      const rows = await tier.metric('region_probe_buffered');
      return rows['region="home"'] === 1 && rows['region="far"'] === 0;
    });
    expect(home.told[0]?.context).toMatchObject({ tenant: 'spillway-probe', conversation: null });
    expect(tier.lines.filter(({ msg }) => msg === 'streams_held_back')).toMatchObject([
      { level: 40, region: 'home' },
    ]);
    const { body } = await request(`http://127.0.0.1:${tier.router.adminPort}/status`, {
      headers: { accept: 'text/plain' },
    });
    expect(await body.text()).toMatch(/region home .*HELD BACK on the way/);
    // And again, when it is over.
    home.script = far.script;
    await until(() => tier.lines.some(({ msg }) => msg === 'streams_pass'));
  });

  test('begins with a change of the file, and comes as often as that says', async () => {
    const { home, tier } = await two();
    const { reloadable } = tier.options;
    const probed = (): number =>
      home.told.filter(({ context }) => context.tenant === 'spillway-probe').length;
    // None is due for an hour: a shorter interval counts for the one before too.
    tier.router.reload({ ...reloadable, probes: { ...PROBES, intervalMs: 3_600_000 } });
    await until(() => probed() === 1);
    tier.router.reload({ ...reloadable, probes: PROBES });
    await until(() => probed() === 3);
  });

  test('asks the next model where the first generates nothing, and shows no region that is gone', async () => {
    const { home, far, tier } = await two({ reloadable: { probes: PROBES } });
    const row = { revision: 'unknown', maxModelLen: null };
    const models = [
      { name: 'embeds', ...row },
      { name: MODEL, ...row },
    ];
    home.report({ models });
    const answers = home.script;
    home.script = (received, response) =>
      received.body.toString().includes('"embeds"')
        ? statusOf(400, '{}')(received, response)
        : answers(received, response);
    const shown = async () => Object.keys(await tier.metric('region_probe_ttft_seconds'));
    await until(async () => (await shown()).length === 2);
    tier.router.reload({ ...tier.options.reloadable, regions: [far.options] });
    await until(async () => (await shown()).join() === 'region="far"');
  });

  test('does not ask where nothing is ready', async () => {
    const { home, far, tier } = await two({
      reloadable: { probes: { ...PROBES, intervalMs: 250 } },
    });
    await until(() => home.told.length > 0);
    home.report({ readyReplicas: 0 });
    await until(() => tier.router.status().regions[0]?.pools[0]?.readyReplicas === 0);
    // One may have been under way.
    let { length } = far.told;
    await until(() => far.told.length > length + 1);
    const before = home.told.length;
    ({ length } = far.told);
    await until(() => far.told.length > length + 1);
    expect(home.told.length).toBe(before);
    home.report();
    await until(() => home.told.length > before);
    expect(tier.router.status().regions.map(({ probe }) => probe?.kind)).toEqual(['good', 'good']);
  });

  test('says who does not know it, users or none', async () => {
    const { home, tier } = await two({ reloadable: { probes: PROBES } });
    home.script = statusOf(401, '{}');
    await until(() => tier.lines.some(({ msg }) => msg === 'region_refuses_tier'));
    const said = tier.lines.filter(({ msg }) => msg === 'region_refuses_tier');
    expect(said[0]).toMatchObject({ region: 'home', status: 401 });
    await until(
      async () =>
        ((await tier.metric('tier_refusals_total'))['region="home",status="401"'] ?? 0) > 0,
    );
  });

  test('takes a region that has no room for busy, and one that answers with nonsense for failed', async () => {
    const { home, far, tier } = await two({ reloadable: { probes: PROBES } });
    home.script = statusOf(429, '{}');
    far.script = answerOf('no stream');
    const probed = (kind: string) =>
      tier.router
        .status()
        .regions.flatMap(({ region, probe }) => (probe?.kind === kind ? region : []));
    await until(() => probed('busy').length > 0 && probed('failed').length > 0);
    expect([probed('busy'), probed('failed')]).toEqual([['home'], ['far']]);
  });
});

describe('a client that leaves', () => {
  test('ends the attempt in its region at once', async () => {
    const { home, tier } = await two();
    home.script = (_received, response) => {
      streamHead(response);
      response.write(chunk('and so'));
    };
    const stream = await sdk(tier).chat.completions.create({ ...CHAT, stream: true });
    for await (const _ of stream) break;
    await home.told[0]?.cut;
    await until(() => tier.router.status().openRequests === 0);
    expect(await tier.metric('client_aborts_total')).toMatchObject({ 'stage="streaming"': 1 });
  });
});

describe('what cannot be seen', () => {
  test('gets nothing: without a report that is young enough the refusal has a name', async () => {
    const settings = { ...GLOBAL_DEFAULTS, staleGraceMs: 300 };
    const { home, far, tier } = await two({ reloadable: { settings } });
    expect(await textOf(tier)).toBe('hello there');
    await home.hangUp();
    await far.hangUp();
    await until(() => tier.router.status().regions.every(({ seen }) => !seen));
    const answer = await post(tier, CHAT);
    expect(answer.status).toBe(503);
    expect(answer.text).toContain('no_healthy_region');
    expect(answer.headers['x-should-retry']).toBe('true');
    const said = () => tier.lines.find(({ code }) => code === 'no_healthy_region');
    await until(() => said() !== undefined);
    expect(said()).toMatchObject({ refusedBy: 'home unseen, far unseen', reason: 'no_region' });
    const ready = await request(`http://127.0.0.1:${tier.router.adminPort}/readyz?verbose`);
    expect(ready.statusCode).toBe(503);
    expect(await ready.body.text()).toContain('[-] regions: 0 of 2 seen');
  });
});

describe('operators', () => {
  test('see regions, and what models clients may name', async () => {
    const { tier } = await two();
    const page = async (port: number | null, path: string, accept = 'text/plain') =>
      (await request(`http://127.0.0.1:${port}${path}`, { headers: { accept } })).body.text();
    const status = await page(tier.router.adminPort, '/status');
    expect(status).toMatch(
      /region home \(home\): seen, 1 of 1 routers linked, round trip [\d.]+ ms/,
    );
    expect(await page(tier.router.clientsPort, '/v1/models')).toContain('"max_model_len":8192');
    expect(await tier.metric('region_seen')).toEqual({ 'region="home"': 1, 'region="far"': 1 });
    const explained = await request(`http://127.0.0.1:${tier.router.adminPort}/v1/route/explain`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(CHAT),
    });
    expect(await explained.body.json()).toMatchObject({
      decision: { kind: 'send', region: 'home' },
    });
  });

  test('see a connection to a region that stands ready', async () => {
    const { tier } = await two();
    const warm = () => tier.router.status().regions.map((region) => region.warm);
    expect(warm()).toEqual([false, false]);
    await textOf(tier);
    await until(() => warm()[0] === true);
    expect(warm()).toEqual([true, false]);
  });

  test('change regions while it runs: a region that is switched off gets nothing more', async () => {
    const { home, far, tier } = await two();
    const regions = [{ ...home.options, rollout: 'off' as const }, far.options];
    tier.router.reload({ ...tier.options.reloadable, regions });
    await textOf(tier);
    expect(home.told).toHaveLength(0);
    expect(far.told).toHaveLength(1);
  });

  test('drain it: what runs ends, what is new is refused', async () => {
    const { home, tier } = await two();
    let finish = (): void => undefined;
    home.script = (_received, response) => {
      streamHead(response);
      response.write(chunk('one '));
      finish = () => void response.end(`${chunk('two')}${DONE}`);
    };
    const running = textOf(tier);
    await until(() => home.told.length === 1);
    const drained = tier.router.drain({ acceptMs: 0, drainMs: 20_000 });
    expect((await post(tier, CHAT)).text).toContain('draining');
    finish();
    expect(await running).toBe('one two');
    await drained;
  });
});
