// The long-running commands as real processes: what they print, serve and take while they run, and how they end.

import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Spawned } from '../spawned.ts';

let running: Spawned[] = [];
let folder = '';

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'spillway-running-'));
});

afterEach(async () => {
  await Promise.all(running.map((process) => process.kill()));
  running = [];
  rmSync(folder, { recursive: true });
});

function start(words: readonly string[], env: Readonly<Record<string, string>> = {}): Spawned {
  const process = new Spawned(words, env);
  running.push(process);
  return process;
}

async function json(url: string): Promise<Record<string, unknown>> {
  const response = await fetch(url);
  return (await response.json()) as Record<string, unknown>;
}

async function chat(base: string, model: string, key?: string): Promise<Response> {
  return fetch(`${base}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
    },
    body: JSON.stringify({
      model,
      messages: [{ role: 'user', content: 'Hello' }],
      max_tokens: 4,
    }),
  });
}

describe('spillway demo', () => {
  it('serves, says how to try it, and ends with 0 on SIGTERM', async () => {
    const demo = start(['demo', '--one-region', '--port', '0']);
    const [, base] = await demo.printed(/Spillway listens on (http:\S+)/);
    await demo.printed(/status: {2}http/);
    expect(demo.output).toContain('curl -N');
    expect(demo.output).toContain('from openai import OpenAI');
    const answer = await chat(base ?? '', 'demo-model');
    expect(answer.status).toBe(200);
    const body = (await answer.json()) as { usage: { completion_tokens: number } };
    expect(body.usage.completion_tokens).toBe(4);
    demo.process.kill('SIGTERM');
    expect(await demo.exited).toBe(0);
  });

  it('has three regions, each tenant where it may be; one that dies is started again', async () => {
    const demo = start(['demo', '--port', '0', '--replicas', '1']);
    const [, base] = await demo.printed(/Spillway listens on (http:\S+)/);
    await demo.printed(/metrics: http/);
    expect(demo.output).toContain('spill interval 2 s');
    const bank = await chat(base ?? '', 'demo-model', 'sk-demo-bank');
    expect([bank.status, bank.headers.get('x-spillway-region')]).toEqual([200, 'frankfurt']);
    const [, pid] = await demo.printed(/--scene death --pid (\d+)/);
    process.kill(Number(pid), 'SIGKILL');
    await demo.printed(/tokyo has died \(SIGKILL\)/);
    const shop = await chat(base ?? '', 'demo-model', 'sk-demo-shop');
    expect([shop.status, shop.headers.get('x-spillway-region')]).toEqual([200, 'singapore']);
    demo.process.kill('SIGTERM');
    expect(await demo.exited).toBe(0);
  });

  it('says which port is taken, whatever it was to start', async () => {
    const demo = start(['demo', '--one-region', '--port', '0', '--replicas', '1']);
    const [, port] = await demo.printed(/listens on http:\/\/127\.0\.0\.1:(\d+)/);
    const second = start(['demo', '--one-region', '--port', port ?? '']);
    expect(await second.exited).toBe(1);
    expect(second.output).toMatch(/^spillway demo: .*:\d+ is in use by another process/);
    const third = start(['demo', '--port', port ?? '']);
    expect(await third.exited).toBe(1);
    expect(third.output).toMatch(/:\d+ is in use by another process/);
  });
});

describe('ending', () => {
  async function streaming(maxTokens: number): Promise<{ demo: Spawned; text: Promise<string> }> {
    const demo = start(['demo', '--one-region', '--port', '0', '--replicas', '1']);
    const [, base] = await demo.printed(/Spillway listens on (http:\S+)/);
    const answer = await fetch(`${base ?? ''}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'demo-model',
        prompt: 'Go',
        max_tokens: maxTokens,
        stream: true,
      }),
    });
    expect(answer.status).toBe(200);
    return { demo, text: answer.text().catch(() => 'cut') };
  }

  it('lets a running stream end before the process does', async () => {
    const { demo, text } = await streaming(150);
    demo.process.kill('SIGTERM');
    const stream = await text;
    expect(stream).toContain('"finish_reason":"length"');
    expect(stream.trimEnd().endsWith('data: [DONE]')).toBe(true);
    expect(await demo.exited).toBe(0);
  });

  it('at a second signal waits for nothing', async () => {
    const { demo, text } = await streaming(20_000);
    demo.process.kill('SIGTERM');
    await demo.printed(/ending: a second signal ends at once/);
    demo.process.kill('SIGTERM');
    expect(await demo.exited).toBe(1);
    expect(await text).not.toContain('[DONE]');
  });
});

describe('spillway up', () => {
  it('serves what it found and waits for what is not there yet', async () => {
    const engine = start(['engine-sim', '--port', '0', '--model', 'm', '--loading-ms', '0']);
    const [, url] = await engine.printed(/on (http:\S+),/);
    const up = start([
      'up',
      '--port',
      '0',
      '--engine',
      url ?? '',
      '--engine',
      'http://127.0.0.1:1',
    ]);
    await up.printed(/found {4}\S+ vLLM 0\.32\.0, m,/);
    await up.printed(/waiting {2}http:\/\/127\.0\.0\.1:1: nothing listens there yet/);
    const [, base] = await up.printed(/Spillway listens on (http:\S+)/);
    await up.printed(/"model": "m"/);
    await expect
      .poll(async () => (await fetch(`${base ?? ''}/readyz`)).status, { timeout: 20_000 })
      .toBe(200);
    expect((await chat(base ?? '', 'm')).status).toBe(200);
    up.process.kill('SIGINT');
    expect(await up.exited).toBe(0);
  });
});

describe('spillway up before several regions', () => {
  const hash = (key: string): string => `sha256:${createHash('sha256').update(key).digest('hex')}`;

  /** Of a desk's own region and one that is elsewhere; what links the tiers is not in it. */
  const file = (engine: string, farAllowed: string): string => `
region: desk
pools: [{ id: gpu }]
agent: { engines: [{ url: '${engine}' }] }
regions:
  - { name: desk, zone: home, baseUrl: 'https://desk.example:8083' }
  - name: eu
    zone: eu
    baseUrl: 'https://eu.example:8083'
    linkSecrets: [a-link-secret-of-the-eu]
    tierKey: { id: eu, secret: a-tier-secret-of-the-eu }
tenants:
  - { name: near, keys: [{ name: near, hash: '${hash('sk-near')}' }] }
  - name: far
    keys: [{ name: far, hash: '${hash('sk-far')}' }]
    residency: { allow: [${farAllowed}] }
global: { zone: home, clients: { listen: '127.0.0.1:0' } }
`;

  it('runs every role in one process, takes a change of its file, and ends with 0', async () => {
    const engine = start(['engine-sim', '--port', '0', '--model', 'm', '--loading-ms', '0']);
    const [, url = ''] = await engine.printed(/on (http:\S+),/);
    const path = join(folder, 'fleet.yaml');
    writeFileSync(path, file(url, 'eu'));
    const up = start(['up', '-f', path, '--log-format', 'json']);
    const [, base = ''] = await up.printed(/Spillway listens on (http:\S+)/);
    const [, status = ''] = await up.printed(/status: {2}(http:\S+)/);
    await up.printed(/region desk, behind the global router: http/);
    expect(up.output).toContain('authorization: Bearer <key>');
    await expect
      .poll(async () => (await chat(base, 'm', 'sk-near')).status, { timeout: 20_000 })
      .toBe(200);
    const near = await chat(base, 'm', 'sk-near');
    expect(near.headers.get('x-spillway-region')).toBe('desk');
    expect(((await json(status)) as { regions: unknown[] }).regions).toHaveLength(2);
    const far = await chat(base, 'm', 'sk-far');
    expect(await far.json()).toMatchObject({ error: { code: 'no_healthy_region' } });
    writeFileSync(path, file(url, 'desk'));
    await up.printed(/"generation":2,"msg":"configuration taken"/);
    expect((await chat(base, 'm', 'sk-far')).status).toBe(200);
    up.process.kill('SIGTERM');
    expect(await up.exited).toBe(0);
  });
});

describe('spillway agent', () => {
  it('says where it listens, outlives SIGHUP, and ends with 0 on SIGTERM', async () => {
    const words = ['agent', '--engine', 'http://127.0.0.1:1', '--listen', '127.0.0.1:0'];
    const agent = start([...words, '--router', 'ws://127.0.0.1:1', '--log-format', 'json']);
    const [, port] = await agent.printed(/"port":(\d+),"pool":"default".*"msg":"agent listening"/);
    agent.process.kill('SIGHUP');
    await agent.printed(/an agent reads its configuration at its start only/);
    const ready = await fetch(`http://127.0.0.1:${port ?? ''}/readyz`);
    expect(ready.status).toBe(503);
    expect(((await ready.json()) as { missing: string[] }).missing[0]).toBe('no router is linked');
    agent.process.kill('SIGTERM');
    expect(await agent.exited).toBe(0);
  });
});

describe('spillway router with a file', () => {
  const file = (holdMs: string): string =>
    `router:
  clients: { listen: "127.0.0.1:0" }
  links: { listen: "127.0.0.1:0" }
  admin: null
  shutdown: { acceptMs: 0 }
  routing: { holdMs: ${holdMs} }
`;

  it('takes a change, refuses a broken one and says so, takes SIGHUP', async () => {
    const path = join(folder, 'fleet.yaml');
    writeFileSync(path, file('60'));
    const router = start(['router', '--config', path, '--log-format', 'json']);
    const [, port] = await router.printed(/"clientsPort":(\d+)/);
    const base = `http://127.0.0.1:${port ?? ''}`;
    writeFileSync(path, file('80'));
    await router.printed(/"generation":2,"msg":"configuration taken"/);
    writeFileSync(path, file('80x'));
    await router.printed(/configuration refused: the last good one stays/);
    expect(JSON.stringify(await json(`${base}/status`))).toContain('must be a plain number in ms');
    const metrics = await (await fetch(`${base}/metrics`)).text();
    expect(metrics).toMatch(/^spillway_config_generation 2$/m);
    expect(metrics).toMatch(/^spillway_config_last_reload_ok 0$/m);
    writeFileSync(path, file('90'));
    await router.printed(/"generation":3,"msg":"configuration taken"/);
    router.process.kill('SIGHUP');
    await router.printed(/"generation":4,"msg":"configuration taken"/);
    router.process.kill('SIGTERM');
    expect(await router.exited).toBe(0);
  });
});
