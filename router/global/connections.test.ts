import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import type { LeaseId, RegionId } from '../../shared/model/ids.ts';
import { createLog } from '../../shared/runtime/log.ts';
import type { Resolve } from '../../shared/runtime/link-names.ts';
import { ManualTime } from '../../shared/runtime/manual-time.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import { RegionConnections } from './connections.ts';
import type { GlobalEvent } from './events.ts';
import type { RegionOptions } from './options.ts';

const HOME = 'home' as RegionId;
const GONE: AttemptResult = { kind: 'connectFailed', detail: '' };
const WHOLE: AttemptResult = { kind: 'complete', usage: null };
const open: { readonly close: () => unknown }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).toReversed()) await each.close();
});

/** One port at two addresses: each answers with its own. */
async function twins(): Promise<{ port: number; hosts: string[] }> {
  const hosts: string[] = [];
  const listen = (address: string, port: number): Promise<Server> =>
    new Promise((resolve, reject) => {
      const server = createServer(({ headers }, response) => {
        hosts.push(headers.host ?? '');
        response.end(address);
      });
      server.once('error', reject);
      server.listen(port, address, () => resolve(server));
      open.push({ close: () => server.closeAllConnections() }, { close: () => server.close() });
    });
  const first = await listen('127.0.0.1', 0);
  const { port } = first.address() as AddressInfo;
  await listen('127.0.0.2', port);
  return { port, hosts };
}

function regionAt(baseUrl: string, otherBaseUrls: readonly string[] = []): RegionOptions {
  return {
    ...{ id: HOME, zone: 'eu', certifications: [], tiers: [], costMs: 0, rollout: 'active' },
    ...{ baseUrl, otherBaseUrls, tls: null, tierKey: { id: 'k', secret: 's' } },
    ...{ linkSecrets: [], linkNames: [] },
  };
}

const NAMES: Resolve = (host) =>
  Promise.resolve(host === 'region.test' ? ['127.0.0.1', '127.0.0.2'] : []);

function connect(
  baseUrl: string,
  { others = [], names = NAMES }: { others?: readonly string[]; names?: Resolve } = {},
) {
  const time = new ManualTime();
  const posted: GlobalEvent[] = [];
  let looked = (): void => undefined;
  const isLooked = new Promise<void>((resolve) => (looked = resolve));
  const connections = new RegionConnections(
    {
      connectTimeoutMs: 1_000,
      tls: { trust: () => null },
      runtime: {
        clock: time,
        timers: time,
        log: createLog({ level: 'silent', readable: false }),
      },
      post: (event) => posted.push(event),
      resolve: (host) => {
        looked();
        return names(host);
      },
    },
    [regionAt(baseUrl, others)],
  );
  open.push({ close: () => connections.close() });
  return { connections, time, posted, isLooked };
}

/** Of the event loop: what is on its way has come. */
const turn = (): Promise<void> => new Promise((resolve) => void systemTimers.after(0, resolve));

let leases = 0;
async function ask(connections: RegionConnections, result: AttemptResult = WHOLE): Promise<string> {
  const lease = `r.${(leases += 1)}` as LeaseId;
  const answer = await connections.take(HOME, lease)?.request({ path: '/', method: 'GET' });
  const text = (await answer?.body.text()) ?? '';
  connections.ended(lease, result);
  return text;
}

async function askMany(connections: RegionConnections, times: number): Promise<Set<string>> {
  const said = new Set<string>();
  for (let k = 0; k < times; k += 1) said.add(await ask(connections));
  return said;
}

describe('a region whose name stands for two addresses', () => {
  test('is asked at both, under its own name, and at one alone while the other is down', async () => {
    const { port, hosts } = await twins();
    const { connections, time, isLooked } = connect(`http://region.test:${port}`);
    await isLooked;
    await turn();
    expect(await askMany(connections, 4)).toEqual(new Set(['127.0.0.1', '127.0.0.2']));
    expect(new Set(hosts)).toEqual(new Set([`region.test:${port}`]));
    const lost = await ask(connections, GONE);
    const left = lost === '127.0.0.1' ? '127.0.0.2' : '127.0.0.1';
    expect(await askMany(connections, 4)).toEqual(new Set([left]));
    time.advance(1_001);
    expect(await askMany(connections, 4)).toEqual(new Set(['127.0.0.1', '127.0.0.2']));
  });
});

describe('a connection that stands ready', () => {
  const warmth = (posted: readonly GlobalEvent[]): boolean[] =>
    posted.flatMap((event) => (event.kind === 'warmth' ? [event.warm] : []));

  test('is one more than requests are under way, until it is closed', async () => {
    const { port } = await twins();
    const { connections, posted } = connect(`http://127.0.0.1:${port}`);
    const lease = 'r.a' as LeaseId;
    const answer = await connections.take(HOME, lease)?.request({ path: '/', method: 'GET' });
    connections.look(HOME);
    expect(warmth(posted)).toEqual([]);
    await answer?.body.text();
    connections.ended(lease, WHOLE);
    connections.look(HOME);
    expect(warmth(posted)).toEqual([true]);
    // The only one is taken.
    connections.take(HOME, 'r.b' as LeaseId);
    connections.look(HOME);
    connections.ended('r.b' as LeaseId, WHOLE);
    connections.look(HOME);
    expect(warmth(posted)).toEqual([true, false, true]);
    for (const { close } of open.slice(0, -1)) close();
    while (warmth(posted).length < 4) await turn();
    expect(warmth(posted)).toEqual([true, false, true, false]);
  });

  test('is none that something else uses meanwhile', async () => {
    const { port } = await twins();
    const { connections, posted } = connect(`http://127.0.0.1:${port}`);
    await connections.with(HOME, async (pool) => {
      await (await pool.request({ path: '/', method: 'GET' })).body.text();
      await turn();
      connections.look(HOME);
      expect(warmth(posted)).toEqual([]);
    });
    expect(warmth(posted)).toEqual([true]);
  });
});

describe('a region of several URLs', () => {
  test('is asked at each of them', async () => {
    const { port } = await twins();
    const { connections } = connect(`http://127.0.0.1:${port}`, {
      others: [`http://127.0.0.2:${port}`],
    });
    expect(await askMany(connections, 4)).toEqual(new Set(['127.0.0.1', '127.0.0.2']));
  });

  test('is asked where it is configured now, however late a look-up of its old name ends', async () => {
    const { port } = await twins();
    let found = (_addresses: readonly string[]): void => undefined;
    const names: Resolve = () => new Promise((resolve) => (found = resolve));
    const { connections } = connect(`http://region.test:${port}`, { names });
    connections.configure([regionAt(`http://127.0.0.1:${port}`)]);
    found(['127.0.0.2', '127.0.0.3']);
    await turn();
    expect(await askMany(connections, 3)).toEqual(new Set(['127.0.0.1']));
  });

  test('is no region any more where it is configured no more', async () => {
    const { connections } = connect('http://127.0.0.1:1');
    connections.configure([]);
    expect(connections.take(HOME, 'r.0' as LeaseId)).toBe(null);
  });
});
