// How routers of one region find each other and whom they let in: with secrets, with certificates, beside an older router,
// beside themselves. What they tell each other is in siblings.test.ts.

import { afterAll, afterEach, expect, test } from 'vitest';
import type { RouterOptions } from '../../router/regional/options.ts';
import { startRegionalRouter, type RunningRouter } from '../../router/regional/start.ts';
import { ROUTER_OF_AGENTS } from '../../shared/runtime/agent-link.ts';
import { testRuntime } from '../../shared/runtime/link-fakes.ts';
import { startLinkServer } from '../../shared/runtime/link-server.ts';
import { freePort } from '../free-ports.ts';
import { makeAuthority } from '../tls/certificates.ts';
import { CertificateFolder } from '../tls/files.ts';
import { routerOptions } from './shell-harness.ts';
import { until } from './until.ts';

const folder = new CertificateFolder();
const authority = makeAuthority('region ca');
const ca = folder.put('region.crt', authority.cert);
const open: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
});
afterAll(() => folder.remove());

interface Started {
  readonly router: RunningRouter;
  readonly lines: ReturnType<typeof testRuntime>['lines'];
}

type Given = Partial<RouterOptions> & { readonly more?: Parameters<typeof routerOptions>[0] };

async function start(port: number, { more = {}, ...changes }: Given): Promise<Started> {
  const runtime = testRuntime();
  const plain = routerOptions(more);
  const links = { ...plain.links, ...changes.links, port };
  const router = await startRegionalRouter({ ...plain, ...changes, links }, runtime);
  open.push(() => router.close());
  return { router, lines: runtime.lines };
}

/** Two routers that each know both addresses. */
async function pair(given: readonly [Given, Given], scheme = 'ws'): Promise<[Started, Started]> {
  const ports = [await freePort(), await freePort()] as const;
  const siblings = ports.map((port) => `${scheme}://127.0.0.1:${port}`);
  return [
    await start(ports[0], { siblings, ...given[0] }),
    await start(ports[1], { siblings, ...given[1] }),
  ];
}

const sight = ({ router }: Started) => router.status().siblings;
const isLinked = (each: Started): boolean => sight(each).heard === 1 && sight(each).told === 1;
const problemOf = ({ lines }: Started): unknown =>
  lines.find(({ msg }) => msg === 'no link to router')?.['reason'];

test('two that share a secret link each way, and none with itself', async () => {
  const more = { linkSecrets: ['a-secret-of-both'] };
  const routers = await pair([{ more }, { more }]);
  await until(() => routers.every(isLinked));
  expect(routers.map((each) => sight(each).heard)).toEqual([1, 1]);
  expect(routers[0].router.status().links).toBe(0);
});

test('one whose secret is being rotated finds the one that both know', async () => {
  const routers = await pair([
    { more: { linkSecrets: ['the-next-secret-of-both', 'a-secret-of-both'] } },
    { more: { linkSecrets: ['a-secret-of-both'] } },
  ]);
  await until(() => routers.every(isLinked), { timeoutMs: 20_000 });
});

test('one with another secret is not heard, and says so', async () => {
  const [one, other] = await pair([
    { more: { linkSecrets: ['a-secret-of-one'] } },
    { more: { linkSecrets: ['a-secret-of-the-other'] } },
  ]);
  await until(() => problemOf(one) === 'unauthorized' && problemOf(other) === 'unauthorized');
  expect([sight(one), sight(other)]).toMatchObject([{ heard: 0 }, { heard: 0 }]);
});

test('an agent’s secret of one pool is none of a router', async () => {
  const more = { pool: { agentSecrets: ['a-secret-of-the-pool'] } };
  const [one, other] = await pair([{ more: { linkSecrets: ['a-secret-of-the-pool'] } }, { more }]);
  await until(() => problemOf(one) === 'unauthorized');
  expect(sight(other).heard).toBe(0);
});

test('a router of another region is turned away', async () => {
  const [one, other] = await pair([{}, { region: 'elsewhere' }]);
  const turnedAway = ({ lines }: Started): boolean =>
    lines.some(({ msg }) => msg === 'router refused');
  await until(() => turnedAway(one) && turnedAway(other));
  expect([sight(one).heard, sight(other).heard]).toEqual([0, 0]);
});

test('over TLS both sides show certificates, and those of agents are not enough where they bear names', async () => {
  const tls = (name: string) => {
    const made = authority.issue({ commonName: name, names: ['127.0.0.1', `${name}.routers`] });
    const files = folder.write(name, made);
    return { host: '127.0.0.1', port: 0, tls: { ...files, ca, clientAuth: 'required' as const } };
  };
  const open_ = await pair([{ links: tls('one') }, { links: tls('two') }], 'wss');
  await until(() => open_.every(isLinked));
  const more = { pool: { agentNames: ['agents.only'] } };
  const siblingNames = ['three.routers'];
  const [three, four] = await pair(
    [
      { links: tls('three'), more, siblingNames },
      { links: tls('four'), more, siblingNames },
    ],
    'wss',
  );
  await until(() => sight(four).heard === 1 && problemOf(four) === 'unauthorized');
  expect(sight(three).heard).toBe(0);
});

test('a router that knows nothing of siblings is left in peace, and so is the other', async () => {
  const ports = [await freePort(), await freePort()] as const;
  const runtime = testRuntime();
  const older = await startLinkServer({
    ...{ words: ROUTER_OF_AGENTS, host: '127.0.0.1', port: ports[0], ...runtime },
    rules: () => ({ credentials: [], certificates: [] }),
    onHello: () => 'accept',
    onUp: () => undefined,
    onMessage: () => undefined,
    onDown: () => undefined,
  });
  open.push(() => older.close());
  const siblings = ports.map((port) => `ws://127.0.0.1:${port}`);
  const one = await start(ports[1], { siblings });
  await until(() => problemOf(one) === 'http_404');
  expect(runtime.lines.filter(({ level }) => level === 'warn')).toEqual([]);
  expect(sight(one)).toEqual({ heard: 0, told: 0, sends: 0 });
});
