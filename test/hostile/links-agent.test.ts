// An agent whose router turns hostile, beside a good one: whatever the hostile one says or leaves out, its link ends or what
// it says is bounded, and the good one goes on hearing reports that are right.

import { createServer as createPlain, type Server } from 'node:http';
import { createServer as createTcp, type AddressInfo, type Server as TcpServer } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WebSocketServer, type WebSocket } from 'ws';
import { startAgent, type RunningAgent } from '../../agent/start.ts';
import type { Incarnation, LeaseId, ReplicaId, RouterId } from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { decodeAgentMessage, encodeRouterMessage } from '../../shared/protocol/codec.ts';
import type { LeaseFacts, RouterMessage } from '../../shared/protocol/messages.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { fakeRouter, type FakeRouter } from '../../shared/runtime/link-fakes.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { startEngineServer, type RunningEngine } from '../../sim/engine/http/server.ts';
import { ENGINE_PROFILES, type EngineProfile } from '../../sim/engine/profiles.ts';
import { agentOptions } from '../e2e/agent-options.ts';
import { captureLog } from '../e2e/shell-harness.ts';
import { until } from '../e2e/until.ts';
import { frameHead, packed, smallFrame } from './links-peer.ts';
import { msgpackBombs } from './msgpack-bombs.ts';

const GRACE_MS = 300;
const HOSTILES = 8;

interface Hostile {
  readonly server: WebSocketServer;
  /** The agent's newest link to it. */
  link: WebSocket | null;
}

let engine: RunningEngine;
let good: FakeRouter;
let agent: RunningAgent;
let replica: ReplicaId;
/** Several, since an agent dials one that was bad ever less often. */
const hostiles: Hostile[] = [];
let turn = 0;
const { lines, log } = captureLog();
const runtime = { clock: systemClock, timers: systemTimers, random: seededRandom(3), log };

beforeAll(async () => {
  const profile = ENGINE_PROFILES['demo'] as EngineProfile;
  const given = { host: '127.0.0.1', port: 0, model: 'sim-model', profile, loadingMs: 0 };
  engine = await startEngineServer(given, { ...runtime, log: captureLog().log });
  replica = `127.0.0.1:${new URL(engine.url).port}` as ReplicaId;
  good = await fakeRouter({ routerId: 'good' });
  for (let count = 0; count < HOSTILES; count += 1) hostiles.push(await hostileRouter());
  const settings = { reportMaxIntervalMs: 50, linkGraceMs: GRACE_MS };
  const options = agentOptions(engine.url, null, { settings });
  const ports = hostiles.map(({ server }) => (server.address() as AddressInfo).port);
  const routers = [good.port, ...ports].map((port) => `ws://127.0.0.1:${port}`);
  agent = await startAgent({ ...options, routers }, runtime);
  await until(() => lastReport()?.phase === 'ready');
});
afterAll(async () => {
  await agent.close();
  for (const { server, link } of hostiles) {
    link?.terminate();
    server.close();
  }
  await good.server.close();
  await engine.close();
});

function lastReport(): ReplicaReport | null {
  const message = good.messages.findLast(({ kind }) => kind === 'report');
  return message?.kind === 'report' ? message.report : null;
}

async function undisturbed(): Promise<void> {
  const seen = lastReport()?.seq ?? -1;
  await until(() => (lastReport()?.seq ?? -1) > seen + 1);
  expect(lastReport()).toMatchObject({ phase: 'ready' });
  expect(good.ends).toEqual([]);
  expect(lines.filter(({ level }) => level === 'fatal' || level === 60)).toEqual([]);
}

const welcome = (changes: object = {}): RouterMessage => ({
  kind: 'welcome',
  protocol: 1,
  features: [],
  routerId: 'hostile' as RouterId,
  software: 'hostile/1',
  siblings: [],
  minReportIntervalMs: 50,
  resume: [],
  wallMs: 0,
  ...changes,
});

const facts = (lease: string, changes: Partial<LeaseFacts> = {}): LeaseFacts => ({
  lease: lease as LeaseId,
  incarnation: null,
  promptTokens: 10,
  uncachedTokens: 10,
  matchedTokens: 0,
  promptBytes: 40,
  parts: {},
  streamed: true,
  maxTokens: null,
  chains: [],
  ...changes,
});

const said = (message: RouterMessage): Uint8Array => encodeRouterMessage(message);
const at = () => ({ replica, rank: 0 });

async function hostileRouter(): Promise<Hostile> {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: false });
  const hostile: Hostile = { server, link: null };
  server.on('connection', (socket) => {
    socket.on('error', () => undefined);
    hostile.link = socket;
  });
  await new Promise((resolve) => server.once('listening', resolve));
  return hostile;
}

/** A link of the agent, which said hello; it is welcomed unless that is the attack. */
async function taken(greeting: RouterMessage | null = welcome()): Promise<WebSocket> {
  turn += 1;
  const hostile = hostiles[turn % HOSTILES] as Hostile;
  await until(() => hostile.link?.readyState === 1, { timeoutMs: 15_000 });
  const link = hostile.link as WebSocket;
  if (greeting !== null) link.send(said(greeting));
  return link;
}

async function closed(link: WebSocket): Promise<number> {
  if (link.readyState === 3) return 1006;
  return new Promise((resolve) => link.once('close', (code: number) => resolve(code)));
}

const open = (): number => agent.status().engines[0]?.targets[0]?.openLeases ?? -1;

/** The frame ends the link: as a bad one unless it says otherwise. */
async function endsLink(frame: Uint8Array | string, code = 4007, greeting?: null): Promise<void> {
  const link = await taken(greeting === undefined ? welcome() : greeting);
  link.send(frame);
  expect(await closed(link)).toBe(code);
  await undisturbed();
}

describe('a hostile router', () => {
  test.each(msgpackBombs('queued'))('that sends %s is left', async (_, frame) => {
    await endsLink(frame);
  });

  test.each([
    ['text', 'text', 4007],
    ['a message before its welcome', packed({ kind: 'fence', replica: 'a' }), 4007],
    ['another protocol', packed(welcome({ protocol: 7 })), 4001],
    ['100,000 siblings', packed(welcome({ siblings: Array(100_000).fill('ws://a:1') })), 4007],
    ['a welcome of NaN', packed(welcome({ minReportIntervalMs: Number.NaN })), 4007],
  ])('that begins with %s is left', async (_, frame, code) => {
    await endsLink(frame, code, null);
  });

  test.each([
    [
      'a million leases',
      packed({ kind: 'leases', ...zero(), seq: 0, open: Array(1_000_000).fill(0) }),
    ],
    ['70,000 whole leases', packed(leasesOf(70_000))],
    [
      'a lease of figures beyond all',
      packed({
        kind: 'sent',
        ...zero(),
        seq: 1,
        agoMs: 0,
        ...facts('a', { uncachedTokens: 1e300 }),
      }),
    ],
    ['a second welcome in another name', packed(welcome({ routerId: 'another' }))],
  ])('that sends %s is left', async (_, frame) => {
    await endsLink(frame);
  });

  test('that announces 100 MiB, cuts a frame into bits, compresses, or pings without end is left', async () => {
    const unmasked = (frame: Buffer): Buffer =>
      Buffer.concat([Buffer.from([frame[0] ?? 0, (frame[1] ?? 0) & 0x7f]), frame.subarray(6)]);
    const huge = frameHead(0x82, 100 * 1024 * 1024).subarray(0, 10);
    huge[1] = 127;
    const attacks = [
      huge,
      Buffer.concat([...Array(100)].map((__, k) => unmasked(smallFrame(k === 0 ? 0x02 : 0x00)))),
      unmasked(smallFrame(0xc2, Buffer.alloc(8))),
      Buffer.concat(Array(30_000).fill(unmasked(smallFrame(0x89, Buffer.alloc(100))))),
    ];
    for (const bytes of attacks) {
      const link = await taken();
      (link as unknown as { _socket: NodeJS.WritableStream })._socket.write(bytes);
      await closed(link);
      await undisturbed();
    }
  });

  test('may name as many odd siblings as a welcome holds: what is no link address is left out', async () => {
    const odd = ['http://a', 'file:///etc/passwd', 'ws://', 'javascript:1', '', 'ws://127.0.0.1:1'];
    const link = await taken(welcome({ siblings: odd }));
    await undisturbed();
    const dialled = lines.filter(({ msg }) => msg === 'no link to router').map(({ url }) => url);
    expect(dialled).not.toContain('file:///etc/passwd');
    link.terminate();
  });

  test('repeats a lease, tells of unknown ones and lives, and skips: each is held once or not at all', async () => {
    const link = await taken();
    link.send(said({ kind: 'leases', ...at(), seq: 0, open: [] }));
    for (const seq of [1, 2, 2, 3])
      link.send(said({ kind: 'sent', ...at(), seq, agoMs: 0, ...facts('twice') }));
    const other = facts('elsewhere', { incarnation: 'another-life' as Incarnation });
    link.send(said({ kind: 'sent', ...at(), seq: 4, agoMs: 0, ...other }));
    link.send(said({ kind: 'firstToken', ...at(), seq: 5, lease: 'nobody' as LeaseId, agoMs: 0 }));
    link.send(said({ kind: 'sent', ...at(), seq: 90, agoMs: 0, ...facts('skipped') }));
    link.send(
      said({
        kind: 'sent',
        replica: 'other:1' as ReplicaId,
        rank: 9,
        seq: 1,
        agoMs: 0,
        ...facts('x'),
      }),
    );
    await until(() => open() === 2);
    expect(lines.map(({ msg }) => msg)).toContain('ledger_gap');
    const ended = { outcome: 'complete', usage: null, agoMs: 0 } as const;
    for (const seq of [91, 92]) {
      link.send(said({ kind: 'ended', ...at(), seq, lease: 'twice' as LeaseId, ...ended }));
    }
    await until(() => open() === 1);
    await undisturbed();
    link.terminate();
    await until(() => open() === 0);
  });

  test('asks for snapshot after snapshot: it gets a few', async () => {
    const link = await taken();
    let snapshots = 0;
    link.on('message', (frame: Buffer) => {
      const decoded = decodeAgentMessage(frame);
      if (decoded.ok && decoded.message.kind === 'prefix') snapshots += 1;
    });
    for (let count = 0; count < 2_000; count += 1) link.send(said({ kind: 'resync', ...at() }));
    await undisturbed();
    expect(snapshots).toBeLessThan(20);
    link.terminate();
  });

  test('vanishes with 10,000 leases: they are kept for the grace, released once, and the reports say so', async () => {
    const link = await taken();
    const many = Array.from({ length: 10_000 }, (_, k) => ({
      ...facts(`many-${k}`),
      ...{ sentAgoMs: 0, firstTokenAgoMs: null },
    }));
    link.send(said({ kind: 'leases', ...at(), seq: 0, open: many }));
    await until(() => open() === 10_000);
    await until(() => (lastReport()?.waitingPrefillTokens ?? 0) > 50_000);
    link.terminate();
    await until(() => open() === 0);
    await until(() => lastReport()?.waitingPrefillTokens === 0);
    await undisturbed();
  });
});

describe('what is no router', () => {
  const others: (Server | TcpServer)[] = [];
  const agents: RunningAgent[] = [];
  afterAll(async () => {
    for (const each of agents) await each.close();
    for (const server of others) server.close();
  });

  test.each([
    ['a page', 'http_200'],
    ['a way elsewhere', 'http_302'],
    ['garbage', 'hpe_invalid_constant'],
    ['an end', 'econnreset'],
  ])('answers with %s: said once, tried again, and nothing is followed', async (what, reason) => {
    const server = await answering(what);
    others.push(server);
    const { port } = server.address() as AddressInfo;
    const own = captureLog();
    const options = agentOptions(engine.url, `ws://127.0.0.1:${port}`);
    const alone = await startAgent(options, { ...runtime, log: own.log });
    agents.push(alone);
    const downs = () => own.lines.filter(({ msg }) => msg === 'no link to router');
    await until(() => downs().length > 0);
    expect(downs()).toMatchObject([{ reason }]);
  });
});

function answering(what: string): Promise<Server | TcpServer> {
  const server =
    what === 'garbage' || what === 'an end'
      ? createTcp((socket) => {
          socket.on('error', () => undefined);
          if (what === 'an end') socket.destroy();
          else socket.end('SSH-2.0-OpenSSH_9.6\r\n');
        })
      : createPlain((_request, response) => {
          response.writeHead(what === 'a page' ? 200 : 302, { location: 'http://127.0.0.1:1/' });
          response.end('<html>');
        });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}

function zero(): object {
  return { replica: 'a:1', rank: 0 };
}

function leasesOf(count: number): object {
  const lease = { ...facts('a'), sentAgoMs: 0, firstTokenAgoMs: null };
  return { kind: 'leases', ...zero(), seq: 0, open: Array(count).fill(lease) };
}
