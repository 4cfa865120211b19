// A router that whoever likes links to as if it were another router of the region, with and without the secret: each attack
// ends as it should, is counted, leaves nothing, and users are served all the time.

import { afterAll, beforeAll, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { encodeSiblingMessage } from '../../shared/protocol/sibling-codec.ts';
import type { SiblingSend, SiblingSends } from '../../shared/protocol/sibling-messages.ts';
import { CLOSE_CODES } from '../../shared/protocol/messages.ts';
import { SIBLING_PATH } from '../../shared/runtime/sibling-link.ts';
import { until } from '../e2e/until.ts';
import { answerTo, helloOf as agentHello, HostileLink, packed, SECRET } from './links-peer.ts';
import { msgpackBombs } from './msgpack-bombs.ts';
import { startSmallRegion, type SmallRegion } from './small-region.ts';

const TOO_BIG = 1009;

let region: SmallRegion;
let port = 0;
let replica = '';
beforeAll(async () => {
  region = await startSmallRegion({ linkSecrets: [SECRET] }, { linkSecret: SECRET });
  port = region.router.linksPort;
  replica = region.router.status().pools[0]?.replicas[0]?.id ?? '';
});
afterAll(() => region.close());

const target = () => region.router.status().pools[0]?.replicas[0]?.targets[0];

function helloOf(changes: Record<string, unknown> = {}): object {
  return {
    ...{ kind: 'hello', protocol: [1, 1], features: [], routerId: 'hostile' },
    ...{ software: 'hostile/1', region: 'test', ...changes },
  };
}

function sendOf(no: number, changes: Record<string, unknown> = {}): SiblingSend {
  const sums = { promptTokens: 900, uncachedTokens: 900, contextTokens2: 0 };
  return { no, replica, rank: 0, seq: no, ...sums, ...changes } as SiblingSend;
}

const sends = (said: Partial<SiblingSends>): Uint8Array =>
  encodeSiblingMessage({ kind: 'sends', opened: [], past: [], ...said });

function poolsHeld(count: number, changes: Record<string, unknown> = {}): object[] {
  const first = { tenant: '', priority: 0, returning: true, ageMs: 1, patienceMs: 1, ...changes };
  return Array.from({ length: count }, (_, k) => ({ pool: k === 0 ? 'default' : `p${k}`, first }));
}

async function dial(): Promise<HostileLink> {
  const headers = { authorization: `Bearer ${SECRET}` };
  const socket = new WebSocket(`ws://127.0.0.1:${port}${SIBLING_PATH}`, { headers });
  const link = new HostileLink(socket);
  await new Promise((resolve) => socket.once('open', resolve));
  return link;
}

async function linked(changes: Record<string, unknown> = {}): Promise<HostileLink> {
  const link = await dial();
  link.throw(packed(helloOf(changes)));
  await until(() => link.received.length > 0);
  return link;
}

/** Whatever happened is over and left nothing; the agent is linked, and users are served. */
async function undisturbed(): Promise<void> {
  await until(() => region.router.status().siblings.heard === 0);
  expect(region.router.status()).toMatchObject({ links: 1, siblings: { sends: 0 } });
  await until(() => target()?.waitMs === 0);
  await region.settles();
}

async function grown(series: string, act: () => Promise<unknown>): Promise<number> {
  const before = await region.value(series);
  await act();
  return (await region.value(series)) - before;
}

async function endsAs(
  reason: keyof typeof CLOSE_CODES | 'too_large',
  attack: () => Promise<HostileLink>,
): Promise<void> {
  const count = await grown(`sibling_link_ends_total{reason="${reason}"}`, async () => {
    const link = await attack();
    expect(await link.closed).toBe(reason === 'too_large' ? TOO_BIG : CLOSE_CODES[reason]);
  });
  expect(count).toBe(1);
  await undisturbed();
}

test.each([
  ['no secret', ''],
  ['a wrong secret', 'authorization: Bearer guess\r\n'],
])('%s is refused, and counted', async (_, header) => {
  const upgrade = 'connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n';
  const key = `sec-websocket-key: ${Buffer.alloc(16, 7).toString('base64')}\r\n`;
  const head = `GET ${SIBLING_PATH} HTTP/1.1\r\nhost: a\r\n${upgrade}${key}${header}\r\n`;
  const count = await grown('link_oddities_total{kind="refused"}', async () => {
    expect(await answerTo(port, head)).toMatch(/^HTTP\/1.1 401 /);
  });
  expect(count).toBe(1);
  await undisturbed();
});

test.each([
  ['an agent’s hello', 'bad_frame', [agentHello()]],
  ['no hello', 'bad_frame', [{ kind: 'sends', opened: [], past: [] }]],
  ['a second hello', 'bad_frame', [helloOf(), helloOf()]],
  ['another region', 'unauthorized', [helloOf({ region: 'elsewhere' })]],
  ['another protocol', 'protocol_too_old', [helloOf({ protocol: [2, 3] })]],
  ['an id of 1,000 characters', 'bad_frame', [helloOf({ routerId: 'x'.repeat(1_000) })]],
] as const)('%s ends the link', async (_, reason, messages) => {
  await endsAs(reason, async () => {
    const link = await dial();
    for (const message of messages) link.throw(packed(message));
    return link;
  });
});

test.each([
  ['what is no number', { opened: [sendOf(1, { promptTokens: 'many' })] }],
  ['less than nothing', { opened: [sendOf(1, { uncachedTokens: -1 })] }],
  ['more than anything', { opened: [sendOf(1, { contextTokens2: 1e19 })] }],
  ['no end of requests', { opened: [sendOf(1, { requests: 1e9 })] }],
  ['a number below 0', { past: [-1] }],
  ['2,000 sends at once', { opened: Array.from({ length: 2_000 }, (_, no) => sendOf(no)) }],
  ['nothing', { opened: null }],
  ['who waits in more pools than there may be', { held: poolsHeld(300) }],
  ['somebody who waits for no time', { held: poolsHeld(1, { ageMs: Number.NaN }) }],
  ['somebody of no tenant', { held: poolsHeld(1, { tenant: null }) }],
])('sends of %s end the link, and those before weigh no more', async (_, said) => {
  await endsAs('bad_frame', async () => {
    const link = await linked();
    link.throw(sends({ opened: [sendOf(100)] }));
    link.throw(packed({ kind: 'sends', opened: [], past: [], ...said }));
    return link;
  });
});

test.each(msgpackBombs('sends'))('%s ends the link', async (_, bytes) => {
  await endsAs('bad_frame', async () => {
    const link = await linked();
    link.throw(bytes);
    return link;
  });
});

test('whoever says that its own go first everywhere and for ever holds nobody up, and is forgotten', async () => {
  const link = await linked();
  const first = { priority: -1e9, ageMs: 1e15, patienceMs: 0 };
  for (const tenant of ['', 'anybody', 'default']) {
    link.throw(
      packed({ kind: 'sends', opened: [], past: [], held: poolsHeld(9, { ...first, tenant }) }),
    );
  }
  await region.settles();
  link.end();
  await undisturbed();
});

test('a frame beyond its bound ends the link unread', async () => {
  await endsAs('too_large', async () => {
    const link = await linked();
    link.throw(Buffer.alloc(1024 * 1024 + 1, 0x80));
    return link;
  });
});

test('a flood ends the link', async () => {
  const frame = sends({ opened: [sendOf(1)], past: [1] });
  const count = await grown('sibling_link_ends_total{reason="flooded"}', async () => {
    const link = await linked();
    for (let k = 0; k < 1_000; k += 1) link.throw(frame);
    await link.closed;
  });
  expect(count).toBe(1);
  await undisturbed();
});

test('what is said again, or out of order, changes nothing', async () => {
  const link = await linked();
  const first = sends({ opened: [sendOf(1), sendOf(2)] });
  link.throw(sends({ past: [1, 2, 3] }));
  for (let k = 0; k < 20; k += 1) link.throw(first);
  await until(() => region.router.status().siblings.sends === 2);
  link.throw(sends({ past: [2, 2, 7] }));
  await until(() => region.router.status().siblings.sends === 1);
  link.throw(first);
  await until(() => region.router.status().siblings.sends === 2);
  link.end();
  await undisturbed();
});

test('a new kind and a new field are left alone, and counted', async () => {
  const link = await linked();
  const kinds = await grown('link_oddities_total{kind="unknown_kind"}', async () => {
    link.throw(packed({ kind: 'zzNewer' }));
    link.throw(packed({ kind: 'sends', opened: [], past: [], zzNewer: 1 }));
    link.throw(sends({ opened: [sendOf(1)] }));
    await until(() => region.router.status().siblings.sends === 1);
  });
  expect(kinds).toBe(1);
  link.end();
  await undisturbed();
});

test('one that vanishes with 10,000 sends, of all that there is, leaves nothing', async () => {
  const link = await linked();
  const most = { promptTokens: 1e18, uncachedTokens: 1e18, contextTokens2: 1e18 };
  for (let k = 0; k < 10; k += 1) {
    link.throw(
      sends({ opened: Array.from({ length: 1_000 }, (_, n) => sendOf(1_000 * k + n, most)) }),
    );
  }
  await until(() => region.router.status().siblings.sends === 10_000);
  expect(target()?.waitMs).toBeGreaterThan(1e9);
  link.end();
  await undisturbed();
});
