import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import {
  closeScriptedEngines,
  scriptedEngine,
  type Answer,
  type Script,
} from './engines/engine.harness.ts';
import type { EngineClient } from './engines/client.ts';
import { LlamacppAdapter } from './engines/llamacpp.ts';
import { absentRank, type RankScrape, type ScrapeResult } from './events.ts';

afterEach(closeScriptedEngines);

function fixture(file: string): string {
  return readFileSync(new URL(`../test/fixtures/${file}`, import.meta.url), 'utf8');
}

const never: Answer = () => undefined;
const broken: Answer = (_request, response) => void response.destroy();
const endless: Answer = (_request, response) => {
  response.writeHead(200);
  const more = (): void => {
    while (!response.destroyed && response.write('x'.repeat(65_536)));
  };
  response.on('drain', more);
  more();
};
/** Headers and half an answer, then nothing. */
const stuck: Answer = (_request, response) => {
  response.writeHead(200);
  response.write('vllm:num_requests_running{engine="0"} 1\n');
};

const models = (id: string, owner: string, more: object = {}): object => ({
  object: 'list',
  data: [{ id, object: 'model', owned_by: owner, ...more }],
});

const VLLM: Script = {
  '/v1/models': models('tiny', 'vllm', { max_model_len: 8_192 }),
  '/metrics': fixture('vllm-0.32.0/metrics-loaded.prom'),
  '/version': { version: '0.32.0' },
};

const SGLANG: Script = {
  '/v1/models': models('qwen', 'sglang', { max_model_len: 40_960 }),
  '/metrics': fixture('metrics/sglang-v0.5.9-2026-04-gorgo.prom'),
  '/server_info': { version: '0.5.18', page_size: 64, max_running_requests: 48 },
  '/health': 200,
};

const TGI: Script = {
  '/v1/models': models('meta/llama', 'meta/llama'),
  '/metrics': fixture('metrics/tgi-v3-datadog.prom'),
  '/info': {
    model_id: 'meta/llama',
    version: '3.3.5',
    max_total_tokens: 4_096,
    max_concurrent_requests: 128,
    max_batch_total_tokens: 26_944,
  },
};

const LLAMACPP_METRICS = fixture('metrics/llamacpp-ik-fork-2025-08-pr695.prom');

const LLAMACPP: Script = {
  '/v1/models': models('gpt-oss.gguf', 'llamacpp'),
  '/metrics': LLAMACPP_METRICS,
  '/props': {
    total_slots: 2,
    is_sleeping: false,
    build_info: 'b10573-3f545bec',
    default_generation_settings: { n_ctx: 4_096 },
  },
  '/slots': [
    slot(0, {
      n_prompt_tokens: 3_000,
      n_prompt_tokens_processed: 1_024,
      n_prompt_tokens_cache: 512,
    }),
    slot(1, {
      // It grows with the answer: none of it waits.
      n_prompt_tokens: 900,
      n_prompt_tokens_processed: 500,
      n_prompt_tokens_cache: 100,
      next_token: [{ n_decoded: 300 }],
    }),
  ],
};

const GENERIC: Script = { '/v1/models': models('some-model', 'somebody') };

function slot(id: number, figures: object): object {
  return { id, n_ctx: 4_096, is_processing: true, next_token: [{ n_decoded: 0 }], ...figures };
}

function rankOf(result: ScrapeResult, rank = 0): RankScrape {
  if (result.kind !== 'ok') throw new Error(JSON.stringify(result));
  const found = result.scrape.ranks[rank];
  if (found === undefined) throw new Error(`no rank ${rank}`);
  return found;
}

async function scraped(script: Script): Promise<RankScrape> {
  return rankOf(await (await scriptedEngine(script)).reader.scrape());
}

describe('which engine it is', () => {
  const kinds: readonly (readonly [string, Script])[] = [
    ['vllm', VLLM],
    ['sglang', SGLANG],
    ['tgi', TGI],
    ['llamacpp', LLAMACPP],
    ['generic', GENERIC],
  ];
  for (const [kind, script] of kinds) {
    it(`${kind}, with everything that it may answer`, async () => {
      const { reader } = await scriptedEngine(script);
      expect(await reader.scrape()).toMatchObject({ kind: 'ok' });
      expect(reader.kind).toBe(kind);
    });

    it(`${kind}, without metrics`, async () => {
      const { reader } = await scriptedEngine({ ...script, '/metrics': undefined });
      expect(await reader.scrape()).toMatchObject({ kind: 'ok' });
      expect(reader.kind).toBe(kind);
    });
  }

  it('SGLang by its server settings, where a proxy signs the model list', async () => {
    const settings = { tokenizer_path: 'x', mem_fraction_static: 0.9, page_size: 1 };
    const script = { ...GENERIC, '/server_info': settings };
    const { reader } = await scriptedEngine(script);
    await reader.scrape();
    expect(reader.kind).toBe('sglang');
  });

  it('is found out again after the port was refused', async () => {
    const engine = await scriptedEngine(VLLM);
    await engine.reader.scrape();
    await engine.close();
    expect(await engine.reader.scrape()).toEqual({ kind: 'refused' });
    expect(engine.reader.kind).toBeNull();
  });

  it('is found out again with every question for the identity', async () => {
    const engine = await scriptedEngine(VLLM);
    await engine.reader.scrape();
    engine.script = TGI;
    expect(await engine.reader.identify()).toMatchObject({ identity: { kind: 'tgi' } });
    expect(await engine.reader.scrape()).toMatchObject({ scrape: { ranks: [{ running: 0 }] } });
  });

  it('stays what it was where a question that could tell is not answered in time', async () => {
    const engine = await scriptedEngine(TGI);
    await engine.reader.scrape();
    expect(engine.reader.kind).toBe('tgi');
    const silent = (): void => {};
    engine.script = { ...TGI, '/metrics': silent, '/info': silent };
    await engine.reader.identify(50);
    expect(engine.reader.kind).toBe('tgi');
    // Answered otherwise, it is another one.
    engine.script = { '/v1/models': { data: [{ id: 'm' }] } };
    await engine.reader.identify();
    expect(engine.reader.kind).toBe('generic');
  });

  it('stays what the configuration says, which is said once where the engine disagrees', async () => {
    const engine = await scriptedEngine(VLLM, 'sglang');
    for (let times = 0; times < 3; times += 1) await engine.reader.identify();
    expect(engine.reader.kind).toBe('sglang');
    const told = engine.logged.filter((line) => line['msg'] === 'engine_kind_mismatch');
    expect(told).toMatchObject([{ configured: 'sglang', detected: 'vllm', by: 'metrics' }]);
  });

  it('is no engine without a model list', async () => {
    const page = await scriptedEngine({ '/': '<html>', '/v1/models': '<html>hello' });
    expect(await page.reader.scrape()).toEqual({
      kind: 'failed',
      detail: 'models: not a model list',
    });
    expect(await page.reader.identify()).toMatchObject({ kind: 'failed' });
    const nothing = await scriptedEngine({});
    expect(await nothing.reader.scrape()).toEqual({ kind: 'failed', detail: 'models: status 404' });
  });

  it('says in one line what is unknown of a generic one and what follows', async () => {
    const engine = await scriptedEngine(GENERIC);
    for (let times = 0; times < 3; times += 1) await engine.reader.identify();
    expect(engine.logged).toMatchObject([
      { msg: 'engine_generic', unknown: expect.stringContaining('load') as unknown },
    ]);
    expect(String(engine.logged[0]?.['follows'])).toContain('bounded concurrency');
  });
});

describe('what it is', () => {
  const identities: readonly (readonly [string, Script, object])[] = [
    ['vllm', VLLM, { version: '0.32.0', models: [{ id: 'tiny', maxModelLen: 8_192, loras: [] }] }],
    ['sglang', SGLANG, { version: '0.5.18', models: [{ id: 'qwen', maxModelLen: 40_960 }] }],
    ['tgi', TGI, { version: '3.3.5', models: [{ id: 'meta/llama', maxModelLen: 4_096 }] }],
    [
      'llamacpp',
      LLAMACPP,
      { version: 'b10573-3f545bec', models: [{ id: 'gpt-oss.gguf', maxModelLen: 4_096 }] },
    ],
    ['generic', GENERIC, { version: null, models: [{ id: 'some-model', maxModelLen: null }] }],
  ];
  for (const [kind, script, identity] of identities) {
    it(kind, async () => {
      const { reader } = await scriptedEngine(script);
      expect(await reader.identify()).toMatchObject({
        kind: 'ok',
        identity: { kind, ...identity },
      });
    });
  }

  it('puts adapters with the model that they belong to', async () => {
    const list = fixture('vllm-0.32.0/models-lora.json');
    const { reader } = await scriptedEngine({ ...VLLM, '/v1/models': list });
    const identified = await reader.identify();
    expect(identified).toMatchObject({ identity: { models: [{ id: 'tiny-llama' }] } });
    const [model] = identified.kind === 'ok' ? identified.identity.models : [];
    expect(model?.loras).toHaveLength(1);
  });

  it('leaves out names that a report cannot carry: they would end the link to every router', async () => {
    const long = 'x'.repeat(513);
    const { reader } = await scriptedEngine({
      '/version': { version: long },
      '/metrics': fixture('vllm-0.32.0/metrics-idle-fresh.prom'),
      '/v1/models': {
        data: [
          { id: long, owned_by: 'vllm' },
          { id: 'm', owned_by: long, parent: null, max_model_len: 1_000 },
          { id: 'lora', parent: 'm' },
        ],
      },
    });
    expect(await reader.identify()).toMatchObject({
      identity: { version: null, models: [{ id: 'm', maxModelLen: 1_000, loras: ['lora'] }] },
    });
  });

  it('is the model of /info, where TGI has no model list yet', async () => {
    const { reader } = await scriptedEngine({ ...TGI, '/v1/models': undefined });
    expect(await reader.identify()).toMatchObject({
      identity: { kind: 'tgi', models: [{ id: 'meta/llama', maxModelLen: 4_096 }] },
    });
  });
});

describe('figures', () => {
  it('of vLLM come from its metrics', async () => {
    expect(await scraped(VLLM)).toMatchObject({ running: 1, waiting: 15, blockTokens: 32 });
  });

  it('of vLLM without statistics are unknown, not zero', async () => {
    const off = { ...VLLM, '/metrics': 'process_start_time_seconds 1\n' };
    expect(await scraped(off)).toMatchObject({ running: null, waiting: null, kvUsageRatio: null });
  });

  it('of TGI get their limits from /info; what it cannot tell is unknown', async () => {
    const engine = await scriptedEngine(TGI);
    const result = await engine.reader.scrape();
    expect(rankOf(result)).toMatchObject({
      kvCapacityTokens: 26_944,
      runningMax: 128,
      prefillBusyTokens: 662,
      kvUsageRatio: null,
      preemptionsTotal: null,
      cachedTokensTotal: null,
      promptTokensTotal: null,
      waitingPrefillTokens: null,
    });
    expect(result).toMatchObject({
      scrape: { ranks: [{ derived: expect.arrayContaining(['kvCapacityTokens']) as unknown }] },
    });
    await engine.reader.scrape();
    expect(engine.asked.filter((path) => path === '/info')).toHaveLength(1);
  });

  it('are not asked for each second where limits are not told', async () => {
    for (const script of [
      { ...TGI, '/info': 500 },
      { ...SGLANG, '/server_info': 401 },
    ]) {
      const engine = await scriptedEngine(script);
      for (let times = 0; times < 4; times += 1) await engine.reader.scrape();
      const asked = engine.asked.filter((path) => /info/.test(path));
      expect(asked.length).toBeLessThanOrEqual(3);
    }
  });

  it('of TGI leave first tokens unknown while a prefill runs', async () => {
    const text = fixture('metrics/tgi-v3-datadog.prom');
    const running = text.replace(
      'tgi_batch_inference_count{method="prefill"} 16',
      'tgi_batch_inference_count{method="prefill"} 17',
    );
    expect(running).not.toBe(text);
    expect((await scraped({ ...TGI, '/metrics': running })).firstTokensTotal).toBeNull();
    expect((await scraped(TGI)).firstTokensTotal).toBe(109);
  });

  it('of llama.cpp have the waiting prefill of its slots, those that generate left out', async () => {
    expect(await scraped(LLAMACPP)).toMatchObject({
      waitingPrefillTokens: 3_000 - 1_024 - 512,
      runningMax: 2,
      kvCapacityTokens: 8_192,
      computedTokensTotal: 6_886,
      asleep: false,
    });
  });

  it('of llama.cpp have no waiting prefill while a request waits for a slot: its prompt is in no answer', async () => {
    const metrics = LLAMACPP_METRICS.replace('requests_deferred 0', 'requests_deferred 1');
    const rank = await scraped({ ...LLAMACPP, '/metrics': metrics });
    expect(rank).toMatchObject({ waiting: 1, waitingPrefillTokens: null });
  });

  it('of llama.cpp have no waiting prefill where a version leaves cached tokens out', async () => {
    const slots = [slot(0, { n_prompt_tokens: 3_000, n_prompt_tokens_processed: 10 })];
    expect((await scraped({ ...LLAMACPP, '/slots': slots })).waitingPrefillTokens).toBeNull();
  });

  it('of a llama.cpp that sleeps are not asked for: that would wake it', async () => {
    const engine = await scriptedEngine({
      ...LLAMACPP,
      '/props': { total_slots: 2, is_sleeping: true },
    });
    await engine.reader.scrape();
    engine.asked.length = 0;
    expect(rankOf(await engine.reader.scrape())).toMatchObject({ asleep: true, running: null });
    expect(engine.asked).toEqual(['/props']);
  });

  it('of a generic server are all unknown', async () => {
    const rank = await scraped(GENERIC);
    expect(rank).toEqual(absentRank(0));
  });
});

describe("SGLang's loads", () => {
  const NOW_S = 1_000_000;
  const load = (more: object = {}): object => ({
    dp_rank: 0,
    timestamp: NOW_S - 0.2,
    num_running_reqs: 3,
    num_waiting_reqs: 2,
    num_waiting_uncached_tokens: 5_120,
    max_total_num_tokens: 90_000,
    max_running_requests: 64,
    token_usage: 0.25,
    total_prefill_uncached_tokens: 40_000,
    total_prefill_busy_us: 5_000_000,
    ...more,
  });
  const withLoads = (...loads: object[]): Script => ({
    ...SGLANG,
    '/v1/loads': { timestamp: '1970-01-12T13:46:40', loads },
  });

  async function ranks(script: Script): Promise<readonly RankScrape[]> {
    const engine = await scriptedEngine(script);
    engine.time.wallMs = NOW_S * 1_000;
    const result = await engine.reader.scrape();
    return result.kind === 'ok' ? result.scrape.ranks : [];
  }

  it('are what the schedulers say now: waiting prefill tokens, busy time, limits', async () => {
    const [rank] = await ranks(withLoads(load()));
    expect(rank).toMatchObject({
      running: 3,
      waiting: 2,
      runningMax: 64,
      kvUsageRatio: 0.25,
      kvCapacityTokens: 90_000,
      waitingPrefillTokens: 5_120,
      prefillBusyTokens: 40_000,
      prefillBusySeconds: 5,
      // From the metrics beside them.
      computedTokensTotal: 92,
      blockTokens: 1,
    });
  });

  it('are as old as the clock of the engine’s own machine says, where it says its zone', async () => {
    const aged = (timestamp: string): Script => ({
      ...SGLANG,
      '/v1/loads': { timestamp, loads: [load({ timestamp: 2_000_000 })] },
    });
    const [fresh] = await ranks(aged('1970-01-24T03:33:21.500000+00:00'));
    expect(fresh?.waitingPrefillTokens).toBe(5_120);
    const [old] = await ranks(aged('1970-01-24T03:33:50Z'));
    expect(old).toMatchObject({ running: null, waitingPrefillTokens: null });
  });

  it('stand alone where metrics are off', async () => {
    const [rank] = await ranks({ ...withLoads(load()), '/metrics': undefined });
    expect(rank).toMatchObject({ running: 3, waitingPrefillTokens: 5_120, blockTokens: 64 });
    expect(rank).toMatchObject({ computedTokensTotal: null, firstTokensTotal: null });
  });

  it('tell every data-parallel rank, and then figures of all together belong to none', async () => {
    const both = await ranks(withLoads(load(), load({ dp_rank: 1, num_running_reqs: 7 })));
    expect(both.map(({ rank, running }) => [rank, running])).toEqual([
      [0, 3],
      [1, 7],
    ]);
    expect(both.map((rank) => rank.promptTokensTotal)).toEqual([null, null]);
  });

  it('are no news from a scheduler that has work and has written nothing for long', async () => {
    const [rank] = await ranks(withLoads(load({ timestamp: NOW_S - 30 })));
    expect(rank).toMatchObject({
      running: null,
      waiting: null,
      kvUsageRatio: null,
      waitingPrefillTokens: null,
      kvCapacityTokens: 90_000,
    });
  });

  it('are old on an idle scheduler, which writes nothing; what waits is then not claimed to be 0', async () => {
    const idle = { num_running_reqs: 0, num_waiting_reqs: 0, num_waiting_uncached_tokens: 0 };
    const [rank] = await ranks(withLoads(load({ ...idle, timestamp: NOW_S - 30 })));
    expect(rank).toMatchObject({ running: 0, waiting: 0, waitingPrefillTokens: null });
  });

  it('without a capacity were written before the first step: nothing is known', async () => {
    const zero = load({ max_total_num_tokens: 0, num_running_reqs: 0, num_waiting_reqs: 0 });
    const [rank] = await ranks({ ...withLoads(zero), '/metrics': undefined });
    expect(rank).toMatchObject({ running: null, waiting: null, kvCapacityTokens: null });
  });

  it('are not asked for again where a version has none', async () => {
    const engine = await scriptedEngine(SGLANG);
    for (let times = 0; times < 3; times += 1) await engine.reader.scrape();
    expect(engine.asked.filter((path) => path.startsWith('/v1/loads'))).toHaveLength(1);
    expect(engine.asked.filter((path) => path === '/server_info')).toHaveLength(1);
  });
});

describe('an engine that does not serve', () => {
  it('is unready while it answers 503 to everything: llama.cpp loads', async () => {
    const loading: Answer = (_request, response) => {
      const error = { message: 'Loading model', type: 'unavailable_error', code: 503 };
      response.writeHead(503).end(JSON.stringify({ error }));
    };
    const all = { '/v1/models': loading, '/metrics': loading, '/props': loading };
    const engine = await scriptedEngine(all);
    expect(await engine.reader.scrape()).toMatchObject({ kind: 'unready' });
    expect(await engine.reader.identify()).toMatchObject({ kind: 'failed' });
    engine.script = LLAMACPP;
    expect(await engine.reader.scrape()).toMatchObject({ kind: 'ok' });
    engine.script = all;
    expect(await engine.reader.scrape()).toMatchObject({ kind: 'unready' });
  });

  it('is not loading for a 503 of somebody else: that would cost it its memory', async () => {
    for (const [script, path] of [
      [VLLM, '/metrics'],
      [SGLANG, '/metrics'],
      [TGI, '/metrics'],
      [LLAMACPP, '/props'],
      [GENERIC, '/v1/models'],
    ] as const) {
      const engine = await scriptedEngine(script);
      await engine.reader.scrape();
      engine.script = { ...script, [path]: 503 };
      expect(await engine.reader.scrape()).toMatchObject({ kind: 'failed' });
    }
  });

  it('is unready while SGLang says so: it warms up, or stops and would serve on without end', async () => {
    const engine = await scriptedEngine({ ...SGLANG, '/health': 503 });
    await expect
      .poll(async () => {
        engine.time.nowMs += 1_000;
        return engine.reader.scrape();
      })
      .toMatchObject({ kind: 'unready', stage: 'loading' });
    engine.script = SGLANG;
    await expect
      .poll(async () => {
        engine.time.nowMs += 1_000;
        return (await engine.reader.scrape()).kind;
      })
      .toBe('ok');
    engine.script = { ...SGLANG, '/health': 503 };
    await expect
      .poll(async () => {
        engine.time.nowMs += 10_000;
        return engine.reader.scrape();
      })
      .toMatchObject({ kind: 'unready', stage: 'stopping' });
  });

  it('asks SGLang for its health every 10 s: each question is a generation', async () => {
    const engine = await scriptedEngine(SGLANG);
    for (let second = 0; second < 25; second += 1) {
      engine.time.nowMs = second * 1_000;
      await engine.reader.scrape();
    }
    await expect.poll(() => engine.asked.filter((path) => path === '/health').length).toBe(3);
  });
});

describe('an engine that is slow to answer', () => {
  it('is asked for its health once at a time: SGLang would generate for each', async () => {
    let health: (status: number) => void = () => {};
    const engine = await scriptedEngine({
      ...SGLANG,
      '/health': (_request, response) => {
        health = (status) => response.writeHead(status).end();
      },
    });
    const questions = (): number => engine.asked.filter((path) => path === '/health').length;
    const scrape = async (): Promise<unknown> => {
      engine.time.nowMs += 10_000;
      return engine.reader.scrape();
    };
    for (let look = 0; look < 3; look += 1) await scrape();
    expect(questions()).toBe(1);
    health(503);
    await expect.poll(scrape).toMatchObject({ kind: 'unready' });
    for (let look = 0; look < 3; look += 1) await scrape();
    expect(questions()).toBe(2);
  });

  it('is left within the time that a scrape has, however many questions follow each other', async () => {
    let spentMs = 0;
    const patient = {
      get: (path: string, timeoutMs: number) => {
        const body = JSON.stringify(LLAMACPP[path] ?? {});
        spentMs += path === '/slots' ? 0 : timeoutMs;
        return Promise.resolve({ kind: 'answer', status: 200, body } as const);
      },
    } as unknown as EngineClient;
    const clock = { nowMs: () => 0, wallMs: () => 0 };
    await new LlamacppAdapter({ client: patient, clock }).scrape(1_000);
    expect(spentMs).toBe(1_000);
  });
});

describe('bad answers', () => {
  it('a refused port is told from one that answers badly', async () => {
    const gone = await scriptedEngine(VLLM);
    await gone.close();
    expect(await gone.reader.scrape()).toEqual({ kind: 'refused' });
    const cut = await scriptedEngine({ '/v1/models': broken, '/metrics': broken });
    expect(await cut.reader.scrape()).toMatchObject({ kind: 'failed' });
    const busy = await scriptedEngine({ ...VLLM, '/metrics': 500 });
    expect(await busy.reader.scrape()).toEqual({ kind: 'failed', detail: 'metrics: status 500' });
  });

  for (const [how, answer] of [
    ['never', never],
    ['by halves', stuck],
  ] as const) {
    it(`an engine that answers ${how} is left at the deadline`, async () => {
      const engine = await scriptedEngine(VLLM);
      await engine.reader.scrape();
      engine.script = { ...VLLM, '/metrics': answer };
      expect(await engine.reader.scrape(30)).toEqual({ kind: 'failed', detail: 'timeout' });
    });
  }

  it('an answer without end is cut at 8 MiB, a slot list at 1', async () => {
    const engine = await scriptedEngine(VLLM);
    await engine.reader.scrape();
    engine.script = { ...VLLM, '/metrics': endless };
    expect(await engine.reader.scrape()).toMatchObject({
      kind: 'failed',
      detail: expect.stringContaining('8388608') as unknown,
    });
    const many = [slot(0, { prompt: 'x'.repeat(1_100_000) })];
    const slots = await scriptedEngine({ ...LLAMACPP, '/slots': many });
    expect(rankOf(await slots.reader.scrape()).waitingPrefillTokens).toBeNull();
    await slots.reader.scrape();
    expect(slots.asked.filter((path) => path === '/slots')).toHaveLength(1);
    slots.time.nowMs = 61_000;
    slots.script = LLAMACPP;
    expect(rankOf(await slots.reader.scrape()).waitingPrefillTokens).toBe(1_464);
  });

  const garbage: readonly (readonly [string, Script, Script])[] = [
    ['loads', SGLANG, { '/v1/loads': '{"loads": [null, 7, {"dp_rank": -3}, {"dp_rank": "x"}]}' }],
    ['server settings', SGLANG, { '/server_info': '[]' }],
    ['info', TGI, { '/info': 'not json' }],
    ['slots', LLAMACPP, { '/slots': '{"error": 1}' }],
    ['slots of nothing', LLAMACPP, { '/slots': [null, 1, 'x'] }],
    ['properties', LLAMACPP, { '/props': '"x"' }],
    ['versions', VLLM, { '/version': '{' }],
  ];
  for (const [what, script, bad] of garbage) {
    it(`garbage as ${what} leaves the rest as it is`, async () => {
      const { reader } = await scriptedEngine({ ...script, ...bad });
      expect(await reader.scrape()).toMatchObject({ kind: 'ok', scrape: { ranks: [{ rank: 0 }] } });
      expect(await reader.identify()).toMatchObject({ kind: 'ok' });
    });
  }
});
