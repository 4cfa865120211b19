// A router that whoever likes connects to, with and without the secret: each attack ends as it should, is counted, and
// disturbs nobody. A good agent is linked all the time; after every attack its reports still come.

import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Incarnation } from '../../shared/model/ids.ts';
import { decodeRouterMessage, encodeAgentMessage } from '../../shared/protocol/codec.ts';
import { CLOSE_CODES } from '../../shared/protocol/messages.ts';
import { until } from '../e2e/until.ts';
import {
  ADDRESS,
  answerTo,
  dial,
  frameHead,
  helloOf,
  packed,
  prefixOf,
  REPLICA,
  reportOf,
  SECRET,
  smallFrame,
  type HostileLink,
} from './links-peer.ts';
import { msgpackBombs } from './msgpack-bombs.ts';
import { startSmallRegion, type SmallRegion } from './small-region.ts';

const TOO_BIG = 1009;
const PROTOCOL_ERROR = 1002;

let region: SmallRegion;
let port = 0;
beforeAll(async () => {
  const settings = { reportMaxIntervalMs: 50 };
  region = await startSmallRegion({ linkSecrets: [SECRET] }, { linkSecret: SECRET, settings });
  port = region.router.linksPort;
});
afterAll(() => region.close());

const goodSeq = (): number => {
  const replicas = region.router.status().pools.flatMap((pool) => pool.replicas);
  const good = replicas.find(({ id }) => id !== REPLICA);
  return good?.targets[0]?.report?.seq ?? -1;
};

/** Whatever happened is over, left nothing, and the good agent is heard as before. */
async function undisturbed(): Promise<void> {
  await until(() => region.router.status().links === 1);
  const seen = goodSeq();
  await until(() => goodSeq() > seen + 1);
  expect(region.router.status()).toMatchObject({ leases: 0, openRequests: 0 });
  expect(region.router.status().pools[0]?.ready).toBe(1);
  expect(region.lines.filter(({ msg }) => msg === 'bug')).toEqual([]);
  expect(await region.value('bugs_total')).toBe(0);
}

/** By how much a counter has grown meanwhile. */
async function grown(series: string, act: () => Promise<unknown>): Promise<number> {
  const before = await region.value(series);
  await act();
  return (await region.value(series)) - before;
}

const ended = (reason: string): string => `link_ends_total{reason="${reason}"}`;
const odd = (kind: string): string => `link_oddities_total{kind="${kind}"}`;
const limit = (name: string): string => `limit_hits_total{limit="${name}"}`;
const refused = (act: () => Promise<unknown>): Promise<number> => grown(odd('refused'), act);

async function linked(changes: Record<string, unknown> = {}): Promise<HostileLink> {
  const link = await dial(port);
  link.say(helloOf(changes));
  await until(() => link.received.length > 0);
  return link;
}

/** The link is closed by this name, which is counted. */
async function closedAs(
  reason: keyof typeof CLOSE_CODES,
  attack: () => Promise<HostileLink>,
  code: number = CLOSE_CODES[reason],
): Promise<void> {
  const count = await grown(ended(reason), async () => {
    const link = await attack();
    expect(await link.closed).toBe(code);
  });
  expect(count).toBe(1);
  await undisturbed();
}

describe('before a link', () => {
  const UPGRADE = 'connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n';
  const key = `sec-websocket-key: ${Buffer.alloc(16, 7).toString('base64')}\r\n`;

  test.each([
    ['no secret', `GET /link HTTP/1.1\r\nhost: a\r\n${UPGRADE}${key}\r\n`, '401'],
    [
      'a wrong secret',
      `GET /link HTTP/1.1\r\nhost: a\r\n${UPGRADE}${key}authorization: Bearer guess\r\n\r\n`,
      '401',
    ],
    ['another path', `GET /other HTTP/1.1\r\nhost: a\r\n${UPGRADE}${key}\r\n`, '404'],
    [
      'a bad key',
      `GET /link HTTP/1.1\r\nhost: a\r\n${UPGRADE}sec-websocket-key: x\r\nauthorization: Bearer ${SECRET}\r\n\r\n`,
      '400',
    ],
    ['no upgrade', 'GET /link HTTP/1.1\r\nhost: a\r\n\r\n', '426'],
    ['a body without end', 'POST /link HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\nx', '426'],
    ['garbage', '\u0000\u0001garbage\r\n\r\n', '400'],
    ['a TLS hello', Buffer.from('16030100c8010000c40303', 'hex'), '400'],
    ['a head of 100 KiB', `GET /link HTTP/1.1\r\nx: ${'x'.repeat(100_000)}\r\n\r\n`, '400'],
  ])('%s is refused, and counted', async (_, bytes, status) => {
    const count = await refused(async () => {
      expect(await answerTo(port, bytes)).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    });
    expect(count).toBe(1);
    await undisturbed();
  });

  test('a refused peer that never closes is cut off all the same', async () => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    socket.on('error', () => undefined);
    socket.write(`GET /link HTTP/1.1\r\nhost: a\r\n${UPGRADE}${key}\r\n`);
    socket.resume();
    await once(socket, 'end');
    // A connection that is only half closed would take this for ever.
    await until(() => !socket.write('more') || socket.destroyed || socket.errored !== null);
    await undisturbed();
  });

  test('connections without end are dropped beyond a number, and said once', async () => {
    const sockets = Array.from({ length: 300 }, () => connect({ port, host: '127.0.0.1' }));
    for (const socket of sockets) socket.on('error', () => undefined);
    const dropped = (): number => sockets.filter(({ closed }) => closed).length;
    const count = await refused(() => until(() => dropped() >= 44));
    expect(count).toBe(44);
    await undisturbed();
    for (const socket of sockets) socket.destroy();
    const said = region.lines.filter(({ msg }) => msg === 'link refused: too many');
    expect(said).toMatchObject([{ limit: 'pending', most: 256 }]);
    await until(async () => {
      const link = await dial(port).catch(() => null);
      link?.end();
      return link !== null;
    });
  });

  test('whoever says nothing, half a head, or no hello is let go in time', async () => {
    const silent = connect({ port, host: '127.0.0.1' });
    const half = connect({ port, host: '127.0.0.1' });
    for (const socket of [silent, half]) socket.on('error', () => undefined).resume();
    half.write('GET /link HTTP/1.1\r\nhost:');
    const link = await dial(port);
    const count = await grown(ended('hello_timeout'), async () => {
      expect(await link.closed).toBe(CLOSE_CODES.hello_timeout);
      await until(() => silent.closed && half.closed);
    });
    expect(count).toBe(1);
    expect(region.lines.map(({ msg }) => msg)).toContain('link closed: no hello in time');
    await undisturbed();
  });
});

describe('a hello', () => {
  const saying =
    (...messages: unknown[]) =>
    async () => {
      const link = await dial(port);
      for (const message of messages) link.throw(packed(message));
      return link;
    };
  const engines = (count: number, ranks = 1) =>
    Array.from({ length: count }, (_, at) => ({
      ...{ replica: `127.0.0.1:${at + 1}`, advertiseUrl: `http://127.0.0.1:${at + 1}`, ranks },
    }));

  test.each([
    ['of an unknown pool', 'unknown_pool', [helloOf({ pool: 'other' })]],
    ['of an older protocol', 'protocol_too_old', [helloOf({ protocol: [0, 0] })]],
    ['of a newer protocol', 'protocol_too_old', [helloOf({ protocol: [2, 3] })]],
    ['of a protocol the wrong way round', 'protocol_too_old', [helloOf({ protocol: [9, 1] })]],
    ['of a protocol in words', 'bad_frame', [helloOf({ protocol: ['one', 'two'] })]],
    ['that comes twice', 'bad_frame', [helloOf(), helloOf()]],
    ['that comes after a report', 'bad_frame', [reportOf(), helloOf()]],
    ['of 100 KiB', 'bad_frame', [helloOf({ software: 'x'.repeat(100_000) })]],
    ['of 10,000 ranks', 'bad_frame', [helloOf({ engines: engines(1, 10_000) })]],
    ['of 300 engines', 'bad_frame', [helloOf({ engines: engines(300) })]],
    ['without engines that are any', 'bad_frame', [helloOf({ engines: [null] })]],
    [
      'of an address outside of the pool',
      'address_refused',
      [
        helloOf({
          engines: [{ replica: '10.1.2.3:80', advertiseUrl: 'http://10.1.2.3', ranks: 1 }],
        }),
      ],
    ],
    [
      'that names another replica than its address',
      'address_refused',
      [helloOf({ engines: [{ replica: '127.0.0.1:8000', advertiseUrl: ADDRESS, ranks: 1 }] })],
    ],
    [
      'of no URL at all',
      'address_refused',
      [helloOf({ engines: [{ replica: REPLICA, advertiseUrl: 'javascript:1', ranks: 1 }] })],
    ],
  ] as const)('%s ends the link by name', async (_, reason, messages) => {
    await closedAs(reason, saying(...messages));
  });

  test('of 256 engines of 1,024 ranks brings as many targets as a link may', async () => {
    const count = await grown(limit('link_targets'), async () => {
      const link = await linked({ engines: engines(256, 64) });
      const ids = region.router.status().pools[0]?.replicas.map(({ id }) => id) ?? [];
      expect(ids.filter((id) => /^127\.0\.0\.1:\d$/.test(id) && id !== REPLICA)).toHaveLength(4);
      link.end();
      await until(() => region.router.status().links === 1);
    });
    expect(count).toBe(1);
    await undisturbed();
  });
});

describe('a frame', () => {
  const wire =
    (...pieces: Uint8Array[]) =>
    async (): Promise<HostileLink> => {
      const link = await linked();
      for (const piece of pieces) link.wire.write(piece);
      return link;
    };

  test('of text ends the link', async () => {
    const count = await grown(odd('malformed'), () =>
      closedAs('bad_frame', async () => {
        const link = await linked();
        link.throw('text');
        return link;
      }),
    );
    expect(count).toBe(1);
  });

  test.each([
    ['that announces 100 MiB', [frameHead(0x82, 100 * 1024 * 1024)]],
    ['that announces more than there are numbers', [frameHead(0x82, 2 ** 53)]],
    [
      'in parts of 15 MiB without end',
      [
        Buffer.concat([frameHead(0x02, 15 * 1024 * 1024), Buffer.alloc(15 * 1024 * 1024)]),
        frameHead(0x00, 2 * 1024 * 1024),
      ],
    ],
  ])('%s ends it at its head', async (_, pieces) => {
    const before = await region.value(ended('too_large'));
    const link = await wire(...pieces)();
    expect([TOO_BIG, 1006]).toContain(await link.closed);
    await until(async () => (await region.value(ended('too_large'))) === before + 1);
    await undisturbed();
  });

  test.each([
    [
      'in a hundred parts',
      [...Array(100)].map((_, at) => smallFrame(at === 0 ? 0x02 : 0x00)),
      1008,
    ],
    ['that is compressed', [smallFrame(0xc2, Buffer.alloc(8))], PROTOCOL_ERROR],
    ['of an unknown kind', [smallFrame(0x83)], PROTOCOL_ERROR],
    ['that is not masked', [Buffer.from([0x82, 0x01, 0x00])], PROTOCOL_ERROR],
    ['that goes on where nothing began', [smallFrame(0x80)], PROTOCOL_ERROR],
    ['that pings with too much', [smallFrame(0x89, Buffer.alloc(126))], PROTOCOL_ERROR],
  ])('%s ends it, and is counted', async (_, pieces, code) => {
    const count = await grown(odd('malformed'), () => closedAs('bad_frame', wire(...pieces), code));
    expect(count).toBe(1);
  });

  test.each(msgpackBombs('report'))('that is %s ends it', async (_, frame) => {
    await closedAs('bad_frame', async () => {
      const link = await linked();
      link.throw(frame);
      return link;
    });
  });

  test.each([
    ['NaN', { waitingPrefillMs: Number.NaN }],
    ['less than nothing', { running: -1 }],
    ['infinity', { prefillTps: Number.POSITIVE_INFINITY }],
    ['more than any sum can hold', { waitingPrefillMs: 1e300 }],
    ['words for numbers', { itlMs: 'fast' }],
    ['a divisor of nearly nothing', { bytesPerToken: { mean: 1e-300, p5: 1, p95: 1 } }],
    ['10,000 models', { models: Array(10_000).fill({ id: 'm', maxModelLen: 1, loras: [] }) }],
    ['a rank beyond all', { rank: 10_000 }],
    ['a sequence that is none', { seq: -1 }],
    ['2 MiB of names', { revision: 'x'.repeat(2_000_000) }],
  ])('that reports %s ends it', async (_, changes) => {
    await closedAs('bad_frame', async () => {
      const link = await linked();
      link.throw(packed(reportOf(changes)));
      return link;
    });
  });

  test.each([
    ['counts that its bytes cannot hold', 16, 200_000],
    ['more runs than there are', 16, 0xffff_ffff],
    ['more leaves than there are', 20, 0xffff_ffff],
    ['half a hash', 24, 3],
  ])('of prefixes with %s ends it', async (_, at, value) => {
    await closedAs('bad_frame', async () => {
      const link = await linked();
      const frame = Buffer.from(encodeAgentMessage(prefixOf(0)));
      frame.writeUInt32LE(value, at);
      link.throw(frame);
      return link;
    });
  });
});

describe('a flood', () => {
  test.each([
    ['reports', (at: number) => encodeAgentMessage(reportOf({ seq: at }))],
    ['prefix deltas', (at: number) => encodeAgentMessage(prefixOf(at))],
    ['messages of unknown kinds', () => packed({ kind: 'novelty' })],
  ])('of %s ends the link long before anybody else waits', async (_, frameOf) => {
    await closedAs('flooded', async () => {
      const link = await linked();
      for (let at = 0; at < 10_000; at += 1) link.throw(frameOf(at));
      return link;
    });
    expect(region.lines.map(({ msg }) => msg)).toContain('link closed: flooded');
  });

  test('of pings that are never read ends it', async () => {
    await closedAs('flooded', async () => {
      const link = await linked();
      const pings = Buffer.concat(Array(2_000).fill(smallFrame(0x89, Buffer.alloc(125))));
      for (let count = 0; count < 20; count += 1) link.wire.write(pings);
      return link;
    });
  });

  test('of snapshots ends it', async () => {
    const count = await grown(limit('prefix_snapshots'), () =>
      closedAs('flooded', async () => {
        const link = await linked();
        for (let at = 0; at < 100; at += 1) link.say(prefixOf(0));
        return link;
      }),
    );
    expect(count).toBeGreaterThan(0);
  });
});

describe('a link that stands', () => {
  let link: HostileLink;
  const kinds = (): string[] =>
    link.received.map((frame) => {
      const decoded = decodeRouterMessage(frame);
      return decoded.ok ? decoded.message.kind : decoded.reason;
    });
  /** Everything said so far has been read: the report's echo comes behind it. */
  async function read(seq: number): Promise<void> {
    const before = kinds().filter((kind) => kind === 'heard').length;
    link.say({ ...reportOf({ seq }), echo: true } as never);
    await until(() => kinds().filter((kind) => kind === 'heard').length > before);
  }

  const counted = async (series: string, act: () => void, seq: number): Promise<number> => {
    await read(seq);
    return grown(series, async () => {
      act();
      await read(seq + 1);
    });
  };

  beforeAll(async () => {
    link = await linked();
  });
  afterAll(async () => {
    link.end();
    await undisturbed();
  });

  test('drops and counts what newer agents say', async () => {
    const say = (message: object) => () => link.throw(packed(message));
    expect(await counted(odd('unknown_kind'), say({ kind: 'novelty' }), 1)).toBe(1);
    const proto = packed({ ...reportOf({ seq: 4 }), xproto__x: 1 });
    const at = Buffer.from(proto).indexOf('xproto__x');
    const named = Buffer.from(proto);
    named.write('__proto__', at);
    expect(await counted(odd('unknown_field'), () => link.throw(named), 3)).toBe(1);
    expect(({} as Record<string, unknown>)['x']).toBeUndefined();
    expect(await counted(odd('unknown_field'), say({ ...reportOf({ seq: 6 }), mood: 1 }), 5)).toBe(
      1,
    );
  });

  test('speaks for no replica but its own', async () => {
    const good = region.router.status().pools[0]?.replicas.find(({ id }) => id !== REPLICA);
    const foreign = () => {
      link.say(reportOf({ replica: good?.id, phase: 'dead', seq: 99 }));
      link.say({ kind: 'bye', replica: good?.id ?? '', reason: 'removed' } as never);
      link.say(prefixOf(0, { replica: good?.id ?? REPLICA }));
    };
    expect(await counted(limit('foreign_report'), foreign, 10)).toBe(3);
    expect(await counted(limit('foreign_report'), () => link.say(reportOf({ rank: 7 })), 12)).toBe(
      1,
    );
    const replicas = region.router.status().pools[0]?.replicas;
    expect(replicas?.find(({ id }) => id === good?.id)?.targets[0]?.phase).toBe('ready');
  });

  test('is not believed what it has seen and was never sent, nor what is older than what it said', async () => {
    expect(
      await counted(
        limit('ack_beyond'),
        () => link.say(reportOf({ seq: 20, ackedSeq: 4_711 })),
        20,
      ),
    ).toBe(1);
    expect(await counted(limit('report_order'), () => link.say(reportOf({ seq: 3 })), 30)).toBe(1);
  });

  test('is asked once for prefixes that skip, and forgets those that nobody has', async () => {
    const asked = () => kinds().filter((kind) => kind === 'resync').length;
    link.say(prefixOf(0));
    const skip = () => {
      for (const seq of [5, 9, 4, 7]) link.say(prefixOf(seq));
    };
    expect(await counted(limit('prefix_gap'), skip, 40)).toBe(1);
    expect(asked()).toBe(1);
    const evicted = Uint32Array.from({ length: 2_000 }, (_, at) => at * 7_919);
    link.say(prefixOf(0, { evicted }));
    link.say(prefixOf(1, { evicted, runs: [] }));
    await read(42);
    const own = region.router.status().pools[0]?.replicas.find(({ id }) => id === REPLICA);
    expect(own?.targets[0]?.indexChunks).toBe(2);
  });

  test('changes the life of its own engine as often as it likes, and nobody else notices', async () => {
    for (let at = 0; at < 50; at += 1) {
      link.say(reportOf({ seq: 50 + at, incarnation: `life-${at}` as Incarnation }));
    }
    await read(120);
    expect(region.router.status().pools[0]?.ready).toBe(1);
  });
});
