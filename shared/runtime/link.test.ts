import { once } from 'node:events';
import type { Socket } from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { WebSocket } from 'ws';
import type { ReplicaId } from '../model/ids.ts';
import { encodeAgentMessage } from '../protocol/codec.ts';
import { CLOSE_CODES, type Hello, type RouterMessage } from '../protocol/messages.ts';
import {
  fakeAgent,
  fakeRouter,
  hello,
  rawFrame,
  rawLink,
  testRuntime,
  welcome,
  type FakeAgent,
  type FakeRouter,
  type FakeRouterOptions,
} from './link-fakes.ts';
import type { LinkServerOptions } from './link-server.ts';
import { ManualTime } from './manual-time.ts';
import { systemTimers, type Timers } from './timers.ts';

const running: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const stop of running.splice(0).reverse()) await stop();
});

async function router(options: FakeRouterOptions = {}): Promise<FakeRouter> {
  const started = await fakeRouter(options);
  running.push(() => started.server.close());
  return started;
}

function agent(...args: Parameters<typeof fakeAgent>): FakeAgent {
  const started = fakeAgent(...args);
  running.push(() => started.client.close());
  return started;
}

async function raw(port: number): Promise<Socket> {
  const socket = await rawLink(port);
  running.push(() => void socket.destroy());
  return socket;
}

/** A WebSocket of nobody's, and the code it is closed with. */
async function stranger(port: number, authorization?: string): Promise<WebSocket> {
  const headers = authorization === undefined ? {} : { authorization };
  const socket = new WebSocket(`ws://127.0.0.1:${port}/link`, { headers });
  running.push(() => socket.terminate());
  await once(socket, 'open');
  return socket;
}

async function closeCode(socket: WebSocket): Promise<number> {
  const [code] = (await once(socket, 'close')) as [number];
  return code;
}

async function until(condition: () => boolean): Promise<void> {
  await vi.waitFor(() => expect(condition()).toBe(true), { timeout: 4_000, interval: 5 });
}

const url = (port: number, host = '127.0.0.1'): string => `ws://${host}:${port}`;
const bye = { kind: 'bye', replica: '127.0.0.1:8000' as ReplicaId, reason: 'drained' } as const;

describe('who may link', () => {
  const rules = (): ReturnType<LinkServerOptions['rules']> => ({
    credentials: [
      { secret: 'old-secret', speaksFor: null },
      { secret: 'new-secret', speaksFor: null },
      { secret: 'llama-secret', speaksFor: ['llama'] },
    ],
    certificates: [],
  });

  it('takes either of two secrets while one replaces the other', async () => {
    const { port, hellos } = await router({ rules });
    agent([url(port)], { secret: 'old-secret' });
    agent([url(port)], { secret: 'new-secret' });
    await until(() => hellos.length === 2);
  });

  it('refuses a wrong or missing secret before the WebSocket opens, and says so once', async () => {
    const here = testRuntime();
    const { port, hellos, server } = await router({ rules, log: here.log });
    const time = new ManualTime();
    const runtime = testRuntime({ clock: time, timers: time });
    const wrong = agent([url(port)], { secret: 'guess', runtime });
    const none = agent([url(port)]);
    await until(() => server.stats().refusedUpgrades === 2);
    await until(() => runtime.lines.some((line) => line['reason'] === 'unauthorized'));
    time.advance(10_000);
    await until(() => server.stats().refusedUpgrades === 3);
    expect(hellos).toHaveLength(0);
    expect(wrong.up.size + none.up.size).toBe(0);
    expect(runtime.lines.filter((line) => line.msg === 'no link to router')).toHaveLength(1);
    // One address: once a minute.
    const said = here.lines.filter((line) => line.msg === 'link refused: secret');
    expect(said).toMatchObject([{ remoteAddress: '127.0.0.1' }]);
    expect(JSON.stringify(here.lines)).not.toContain('guess');
  });

  it('refuses a pool that the secret may not speak for', async () => {
    const { port, hellos } = await router({ rules });
    const other = agent([url(port)], { secret: 'llama-secret', hello: hello('mistral') });
    await until(() => other.ends.includes('unauthorized'));
    agent([url(port)], { secret: 'llama-secret' });
    await until(() => hellos.length === 1);
    expect(hellos[0]?.pool).toBe('llama');
  });

  it("closes with the owner's reason, and reads nothing until the owner has decided", async () => {
    let decide: (verdict: 'accept') => void = () => undefined;
    const verdict = new Promise<'accept'>((resolve) => (decide = resolve));
    const judged = await router({ onHello: () => verdict });
    const socket = await stranger(judged.port);
    socket.send(encodeAgentMessage(hello()));
    for (let count = 0; count < 3; count += 1) socket.send(encodeAgentMessage(bye));
    socket.ping();
    expect(judged.messages).toHaveLength(0);
    decide('accept');
    await until(() => judged.messages.length === 3);
    expect(judged.hellos).toHaveLength(1);

    const refusing = await router({ onHello: () => Promise.resolve('address_refused') });
    const refused = await stranger(refusing.port);
    refused.send(encodeAgentMessage(hello()));
    expect(await closeCode(refused)).toBe(CLOSE_CODES.address_refused);
    expect(refusing.ends).toEqual([]);
  });
});

describe('a change of secrets', () => {
  const old = { secret: 'old-secret', speaksFor: null };
  const next = { secret: 'new-secret', speaksFor: null };
  const none: ReturnType<LinkServerOptions['rules']>['certificates'] = [];

  it('ends the links of a secret that was taken out, says which, and lets their agents in with a good one', async () => {
    const here = testRuntime();
    let credentials = [old, next];
    const rules = () => ({ credentials, certificates: none });
    const { port, hellos, ends, server } = await router({ rules, log: here.log });
    const gone = agent([url(port)], { secret: 'old-secret' });
    const stays = agent([url(port)], { secret: 'new-secret' });
    await until(() => hellos.length === 2);
    credentials = [next];
    server.review();
    await until(() => gone.ends.includes('unauthorized'));
    expect(ends).toEqual(['unauthorized']);
    expect(stays.up.size).toBe(1);
    const said = here.lines.filter(({ msg }) => msg === 'links ended: secret taken out');
    expect(said).toMatchObject([{ links: 1, named: 'llama 127.0.0.1' }]);
    expect(JSON.stringify(here.lines)).not.toContain('-secret"');
    agent([url(port)], { secret: 'new-secret' });
    await until(() => hellos.length === 3);
  });

  it('ends none where one is added, or both are good, whatever else is loaded anew', async () => {
    let credentials = [old];
    const { port, hellos, up, ends, server } = await router({
      rules: () => ({ credentials, certificates: none }),
    });
    agent([url(port)], { secret: 'old-secret' });
    await until(() => hellos.length === 1);
    for (const rules of [[old], [old, next], [next, old]]) {
      credentials = rules;
      server.review();
    }
    agent([url(port)], { secret: 'new-secret' });
    await until(() => hellos.length === 2);
    server.review();
    expect([up.size, ends]).toEqual([2, []]);
  });

  it('ends the links of a pool for which the secret speaks no longer, and who has not said hello', async () => {
    let credentials: ReturnType<LinkServerOptions['rules']>['credentials'] = [old];
    const rules = () => ({ credentials, certificates: none });
    const { port, hellos, server } = await router({ rules });
    const moved = agent([url(port)], { secret: 'old-secret' });
    const stays = agent([url(port)], { secret: 'old-secret', hello: hello('mistral') });
    await until(() => hellos.length === 2);
    const silent = await stranger(port, 'Bearer old-secret');
    credentials = [{ ...old, speaksFor: ['mistral'] }];
    server.review();
    await until(() => moved.ends.includes('unauthorized'));
    credentials = [next];
    server.review();
    expect(await closeCode(silent)).toBe(CLOSE_CODES.unauthorized);
    await until(() => stays.ends.includes('unauthorized'));
  });
});

describe('what a link may carry', () => {
  async function closedFor(send: (socket: WebSocket) => void): Promise<number> {
    const { port } = await router();
    const socket = await stranger(port);
    send(socket);
    return closeCode(socket);
  }

  it('closes a version that it does not speak as protocol_too_old', async () => {
    const old: Hello = { ...hello(), protocol: [0, 0] };
    expect(await closedFor((socket) => socket.send(encodeAgentMessage(old)))).toBe(4001);
    const later: Hello = { ...hello(), protocol: [2, 9] };
    expect(await closedFor((socket) => socket.send(encodeAgentMessage(later)))).toBe(4001);
  });

  it('closes garbage, text, a large hello and messages out of turn as bad_frame', async () => {
    const garbage = Buffer.from('hello there');
    expect(await closedFor((socket) => socket.send(garbage))).toBe(CLOSE_CODES.bad_frame);
    expect(await closedFor((socket) => socket.send('text'))).toBe(CLOSE_CODES.bad_frame);
    const large = { ...hello(), features: Array.from({ length: 64 }, () => 'x'.repeat(2_000)) };
    const frame = encodeAgentMessage(large);
    expect(await closedFor((socket) => socket.send(frame))).toBe(CLOSE_CODES.bad_frame);
    const early = encodeAgentMessage(bye);
    expect(await closedFor((socket) => socket.send(early))).toBe(CLOSE_CODES.bad_frame);
    const twice = (socket: WebSocket): void => {
      socket.send(encodeAgentMessage(hello()));
      socket.send(encodeAgentMessage(hello()));
    };
    expect(await closedFor(twice)).toBe(CLOSE_CODES.bad_frame);
  });

  it('ignores and counts kinds and fields of a newer peer', async () => {
    const { port, server, messages } = await router();
    const socket = await stranger(port);
    socket.send(encodeAgentMessage(hello()));
    socket.send(encodeAgentMessage({ kind: 'novelty' } as never));
    socket.send(encodeAgentMessage({ ...bye, colour: 'red' } as never));
    await until(() => messages.length === 1);
    expect(server.stats()).toMatchObject({ unknownKinds: 1, unknownFields: 1, malformed: 0 });
  });

  it('ends a 100 MiB frame at its head and serves the others on', async () => {
    const { port, ends, up } = await router();
    agent([url(port)]);
    await until(() => up.size === 1);
    const socket = await stranger(port);
    socket.send(encodeAgentMessage(hello()));
    await until(() => up.size === 2);
    socket.on('error', () => undefined);
    socket.send(Buffer.alloc(100 * 1024 * 1024));
    await until(() => ends.length === 1);
    expect(ends).toEqual(['too_large']);
    expect(up.size).toBe(1);
  });

  it('closes a peer that floods it', async () => {
    const { port, ends, up } = await router({ limits: { messagesPerS: 100 } });
    const socket = await stranger(port);
    socket.on('error', () => undefined);
    socket.send(encodeAgentMessage(hello()));
    await until(() => up.size === 1);
    for (let count = 0; count < 1_000; count += 1) socket.send(encodeAgentMessage(bye));
    await until(() => ends.length === 1);
    expect(ends).toEqual(['flooded']);
  });

  it('lets a router say three messages of each of 10,000 requests at once', async () => {
    const { port, server, up } = await router();
    const linked = agent([url(port)]);
    await until(() => up.size === 1);
    const [link] = up;
    server.send(link!, welcome('router-a'));
    const heard = (): number => linked.messages.filter(({ kind }) => kind === 'pace').length;
    for (let burst = 1; burst <= 30; burst += 1) {
      for (let count = 0; count < 1_000; count += 1) {
        expect(server.send(link!, { kind: 'pace', minReportIntervalMs: 50 })).toBe(true);
      }
      await until(() => heard() === burst * 1_000);
    }
    expect(linked.ends).toEqual([]);
  });

  it('holds an agent to what its owner says that it may say, in messages and pings', async () => {
    const { port, ends, up, server } = await router({ messagesPerS: () => 10 });
    for (const flood of ['messages', 'pings']) {
      const socket = await stranger(port);
      socket.send(encodeAgentMessage(hello()));
      await until(() => up.size === 1);
      for (let count = 0; count < 100; count += 1) {
        if (flood === 'pings') socket.ping();
        else socket.send(encodeAgentMessage(bye));
      }
      expect(await closeCode(socket)).toBe(CLOSE_CODES.flooded);
    }
    expect(ends).toEqual(['flooded', 'flooded']);
    expect(server.stats().links).toBe(0);
  });

  it('gives up a peer that does not read, at a bound of unsent bytes', async () => {
    const maxBufferedBytes = 256 * 1024;
    const { port, server, ends, up } = await router({ limits: { maxBufferedBytes } });
    const socket = await raw(port);
    socket.write(rawFrame(encodeAgentMessage(hello())));
    await until(() => up.size === 1);
    const [link] = up;
    const large: RouterMessage = {
      ...(welcome('router-a') as Extract<RouterMessage, { kind: 'welcome' }>),
      siblings: Array.from({ length: 200 }, () => 'x'.repeat(500)),
    };
    let sent = 0;
    while (server.send(link!, large) && sent < 1_000) sent += 1;
    expect(sent).toBeLessThan(1_000);
    await until(() => ends.length === 1);
    expect(ends).toEqual(['flooded']);
    expect(server.send(link!, large)).toBe(false);
  });
});

describe('liveness', () => {
  it('closes a peer that says no hello in time', async () => {
    const time = new ManualTime();
    const { port, server } = await router({ clock: time, timers: time });
    const socket = await stranger(port);
    await until(() => server.stats().links === 1);
    time.advance(4_900);
    expect(server.stats().links).toBe(1);
    time.advance(200);
    expect(await closeCode(socket)).toBe(CLOSE_CODES.hello_timeout);
  });

  it('finds a half-open peer within 10 s', async () => {
    const time = new ManualTime();
    const { port, ends, up } = await router({ clock: time, timers: time });
    const socket = await raw(port);
    socket.write(rawFrame(encodeAgentMessage(hello())));
    await until(() => up.size === 1);
    time.advance(9_999);
    await until(() => ends.length === 1);
    expect(ends).toEqual(['silent']);
  });

  it('keeps a quiet peer that answers pings', async () => {
    const time = new ManualTime();
    const { port, ends, up } = await router({ clock: time, timers: time });
    const socket = await stranger(port);
    let pings = 0;
    socket.on('ping', () => (pings += 1));
    socket.send(encodeAgentMessage(hello()));
    await until(() => up.size === 1);
    for (let beat = 1; beat <= 8; beat += 1) {
      time.advance(2_500);
      await until(() => pings === beat);
      // The pong has come before what is sent after it.
      socket.send(encodeAgentMessage(bye));
      await vi.waitFor(() => expect(ends).toEqual([]));
    }
    expect(up.size).toBe(1);
  });

  it('says shutting_down to every peer and stops listening', async () => {
    const fleet = await router();
    const linked = agent([url(fleet.port)]);
    await until(() => linked.messages.length === 1);
    await fleet.server.close();
    await until(() => linked.ends.length === 1);
    expect(linked.ends).toEqual(['shutting_down']);
    expect(fleet.ends).toEqual(['shutting_down']);
  });
});

describe('dialling every router', () => {
  it('links again after the router has come back, and logs each change once', async () => {
    const first = await router({ routerId: 'first' });
    const linked = agent([url(first.port)]);
    await until(() => linked.messages.length === 1);
    await first.server.close();
    await until(() => linked.client.stats().attempts >= 4);
    await router({ routerId: 'second', port: first.port });
    await until(() => linked.client.links()[0]?.routerId === 'second');
    const about = linked.lines.map((line) => line.msg);
    expect(about.filter((text) => text === 'linked to router')).toHaveLength(2);
    const downs = linked.lines.filter((line) => line.msg === 'no link to router');
    expect(downs.map((line) => line['reason'])).toEqual(['shutting_down', 'refused']);
  });

  it('dials all addresses of a name, and closes those that vanish from it', async () => {
    const one = await router({ routerId: 'one' });
    const two = await router({ routerId: 'two', host: '127.0.0.2', port: one.port });
    const addresses = ['127.0.0.1', '127.0.0.2'];
    const linked = agent([url(one.port, 'routers.example')], {
      resolve: () => Promise.resolve([...addresses]),
      resolveIntervalMs: 10,
    });
    await until(() => one.up.size === 1 && two.up.size === 1);
    addresses.pop();
    await until(() => linked.up.size === 1);
    expect(linked.client.links().map((view) => view.routerId)).toEqual(['one']);
    addresses.push('127.0.0.2');
    await until(() => linked.up.size === 2);
  });

  it('keeps its links while a name does not resolve', async () => {
    const one = await router();
    let broken = false;
    let asked = 0;
    const linked = agent([url(one.port, 'routers.example')], {
      resolve: () => {
        asked += 1;
        return broken ? Promise.reject(new Error('no name')) : Promise.resolve(['127.0.0.1']);
      },
      resolveIntervalMs: 5,
    });
    await until(() => linked.messages.length === 1);
    broken = true;
    const askedThen = asked;
    await until(() => asked > askedThen + 5);
    expect(linked.up.size).toBe(1);
    const said = linked.lines.filter((line) => line.msg === 'router name does not resolve');
    expect(said).toHaveLength(1);
  });

  it('keeps one link to a router that two addresses lead to, and uses the other when it breaks', async () => {
    const fleet = await router({ host: '0.0.0.0' });
    const linked = agent([url(fleet.port), url(fleet.port, '127.0.0.2')]);
    await until(() => linked.ends.includes('duplicate') && fleet.up.size === 1);
    expect(linked.client.links()).toHaveLength(1);
    expect(linked.lines.filter((line) => line.msg === 'no link to router')).toEqual([]);
    const attempts = linked.client.stats().attempts;
    const [link] = fleet.up;
    fleet.server.closeLink(link!, 'shutting_down');
    await until(() => linked.client.stats().attempts > attempts && fleet.up.size === 1);
    expect(linked.ends.filter((reason) => reason === 'shutting_down')).toHaveLength(1);
  });

  it('dials the siblings that a welcome names, and keeps them when the naming router goes', async () => {
    const two = await router({ routerId: 'two' });
    const one = await router({ routerId: 'one', siblings: () => [url(two.port)] });
    const linked = agent([url(one.port)], { resolveIntervalMs: 5 });
    await until(() => one.up.size === 1 && two.up.size === 1);
    await one.server.close();
    await until(() => linked.up.size === 1);
    expect(linked.client.links().map((view) => view.routerId)).toEqual(['two']);
  });

  it('closes a router that talks before its welcome, or garbage', async () => {
    const queued = { kind: 'fence', replica: '127.0.0.1:8000' as ReplicaId } as const;
    const fleet = await router({
      onUp: () => undefined,
      onHello: () => 'accept',
      onDown: () => undefined,
    });
    const linked = agent([url(fleet.port)]);
    await until(() => fleet.server.stats().links === 1);
    fleet.server.send('in-1' as never, queued);
    await until(() => linked.ends.includes('bad_frame'));
    expect(linked.messages).toEqual([]);
  });

  it('dials ever less often while each link breaks as soon as it is welcomed', async () => {
    const fleet = await router({
      onUp: (link) => {
        fleet.server.send(link, welcome('router-a'));
        fleet.server.closeLink(link, 'bad_frame');
      },
      onDown: () => undefined,
    });
    const delays: number[] = [];
    const after: Timers['after'] = (ms, task) => {
      // Only delays before dialling are drawn, and so have a fraction.
      if (!Number.isInteger(ms)) delays.push(ms);
      return systemTimers.after(ms / 50, task);
    };
    agent([url(fleet.port)], { runtime: testRuntime({ timers: { ...systemTimers, after } }) });
    await until(() => delays.length === 6);
    expect(delays.every((delay, k) => delay >= 50 * 2 ** Math.min(k, 4))).toBe(true);
  });

  it('delivers what was sent before it closes', async () => {
    const fleet = await router();
    const linked = agent([url(fleet.port)]);
    await until(() => linked.messages.length === 1);
    const [link] = linked.up;
    linked.client.send(link!, bye);
    await linked.client.close();
    await until(() => fleet.messages.length === 1 && fleet.ends.length === 1);
    expect(fleet.messages).toEqual([bye]);
  });

  it('refuses a URL that is none', () => {
    expect(() => fakeAgent(['http://127.0.0.1:1'])).toThrow(/ws:\/\//);
    expect(testRuntime().lines).toEqual([]);
  });
});
