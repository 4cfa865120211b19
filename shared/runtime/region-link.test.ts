import { afterEach, describe, expect, test, vi } from 'vitest';
import type { LinkId, PoolId, RegionId, RouterId } from '../model/ids.ts';
import type {
  RegionChildMessage,
  RegionHello,
  RegionParentMessage,
} from '../protocol/region-messages.ts';
import { startLinkClient, type LinkClient } from './link-client.ts';
import { fakeAgent, testRuntime, type LogLine } from './link-fakes.ts';
import { startLinkServer, type LinkServer, type LinkServerOptions } from './link-server.ts';
import type { LinkEnd } from './link-socket.ts';
import { REGION_LINK_LIMITS, REGION_OF_ROUTERS, ROUTER_OF_REGIONS } from './region-link.ts';

const running: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of running.splice(0).reverse()) await stop();
});

async function until(condition: () => boolean): Promise<void> {
  await vi.waitFor(() => expect(condition()).toBe(true), { timeout: 4_000, interval: 5 });
}

interface GlobalRouter {
  readonly server: LinkServer<RegionParentMessage>;
  readonly hellos: RegionHello[];
  readonly messages: RegionChildMessage[];
  readonly rtts: number[];
  readonly lines: LogLine[];
}

const RULES: ReturnType<LinkServerOptions['rules']> = {
  credentials: [
    { secret: 'secret-of-tokyo', speaksFor: ['tokyo'] },
    { secret: 'secret-of-paris', speaksFor: ['paris'] },
  ],
  certificates: [],
  openNearby: false,
};

/** Welcomes every region that is let in. */
async function globalRouter(
  rules = RULES,
  limits: LinkServerOptions['limits'] = {},
): Promise<GlobalRouter> {
  const runtime = testRuntime();
  const hellos: RegionHello[] = [];
  const messages: RegionChildMessage[] = [];
  const rtts: number[] = [];
  const server = await startLinkServer({
    words: ROUTER_OF_REGIONS,
    host: '127.0.0.1',
    port: 0,
    rules: () => rules,
    ...runtime,
    limits: { ...REGION_LINK_LIMITS, ...limits },
    onHello: () => 'accept',
    onUp: (link, hello) => {
      hellos.push(hello);
      server.send(link, {
        kind: 'welcome',
        protocol: 1,
        features: [],
        routerId: 'g1' as RouterId,
        software: 'test',
        region: hello.region,
        zone: null,
        reportIntervalMs: 1_000,
        wallMs: 0,
      });
    },
    onMessage: (_link, message) => void messages.push(message),
    onDown: () => undefined,
    onRtt: (_link, rttMs) => void rtts.push(rttMs),
  });
  running.push(() => server.close());
  return { server, hellos, messages, rtts, lines: runtime.lines };
}

interface Region {
  readonly client: LinkClient<RegionChildMessage>;
  readonly messages: RegionParentMessage[];
  readonly ends: LinkEnd[];
  readonly up: LinkId[];
  readonly lines: LogLine[];
}

function region(port: number, name: string, secret: string | null): Region {
  const runtime = testRuntime();
  const messages: RegionParentMessage[] = [];
  const ends: LinkEnd[] = [];
  const up: LinkId[] = [];
  const client = startLinkClient({
    words: REGION_OF_ROUTERS,
    urls: [`ws://127.0.0.1:${port}`],
    secret,
    runtime,
    limits: REGION_LINK_LIMITS,
    onUp: (link) => {
      up.push(link);
      client.send(link, {
        kind: 'hello',
        protocol: [1, 1],
        features: [],
        routerId: `router-of-${name}` as RouterId,
        software: 'test',
        region: name as RegionId,
        wallMs: 0,
      });
    },
    onMessage: (_link, message) => void messages.push(message),
    onDown: (_link, reason) => void ends.push(reason),
  });
  running.push(() => client.close());
  return { client, messages, ends, up, lines: runtime.lines };
}

describe('a region', () => {
  test('links with its own secret, and both sides are heard', async () => {
    const { server, hellos, messages } = await globalRouter();
    const tokyo = region(server.port, 'tokyo', 'secret-of-tokyo');
    await until(() => tokyo.messages.length === 1);
    expect(hellos.map((hello) => hello.region)).toEqual(['tokyo']);
    const [link] = tokyo.up as [LinkId];
    const pool = 'llama' as PoolId;
    tokyo.client.send(link, { kind: 'grant', pool, prefillMs: 5, lifeMs: 6 });
    await until(() => messages.length === 1);
    expect(messages).toEqual([{ kind: 'grant', pool, prefillMs: 5, lifeMs: 6 }]);
    const demand = { kind: 'demand', pool, wantsMs: 1, requestMs: 2, spentMs: 3 } as const;
    server.send('in-1' as LinkId, demand);
    await until(() => tokyo.messages.length === 2);
    expect(tokyo.messages[1]).toEqual(demand);
  });

  test('cannot claim the name of another', async () => {
    const { server, hellos, lines } = await globalRouter();
    const thief = region(server.port, 'paris', 'secret-of-tokyo');
    await until(() => thief.ends.includes('unauthorized'));
    expect(hellos).toEqual([]);
    expect(thief.messages).toEqual([]);
    await until(() => lines.some(({ msg }) => msg === 'region refused'));
    expect(lines.find(({ msg }) => msg === 'region refused')).toMatchObject({
      region: 'paris',
      reason: 'unauthorized',
    });
  });

  test.each([
    ['an agent has', 'secret-of-agents'],
    ['nobody has', null],
  ])('cannot register with a secret that %s', async (_, secret) => {
    const { server, hellos } = await globalRouter();
    const tokyo = region(server.port, 'tokyo', secret);
    await until(() => tokyo.lines.some((line) => line['reason'] === 'unauthorized'));
    expect([hellos, tokyo.up]).toEqual([[], []]);
  });

  test('is not let in from this machine where no region has a credential', async () => {
    const { server, hellos } = await globalRouter({ ...RULES, credentials: [] });
    const tokyo = region(server.port, 'tokyo', null);
    await until(() => tokyo.lines.some((line) => line['reason'] === 'unauthorized'));
    expect(hellos).toEqual([]);
  });
});

test("an agent with a region's secret is none: its hello is no word of that link", async () => {
  const { server, hellos } = await globalRouter();
  const agent = fakeAgent([`ws://127.0.0.1:${server.port}`], { secret: 'secret-of-tokyo' });
  running.push(() => agent.client.close());
  await until(() => agent.ends.includes('bad_frame'));
  expect(hellos).toEqual([]);
});

test('each answered ping tells how far the region is', async () => {
  const { server, rtts } = await globalRouter(RULES, { pingIntervalMs: 20 });
  region(server.port, 'tokyo', 'secret-of-tokyo');
  await until(() => rtts.length >= 3);
  expect(rtts.every((rttMs) => rttMs > 0)).toBe(true);
});
