import { afterAll, afterEach, describe, expect, test, vi } from 'vitest';
import { makeAuthority, type MadeCertificate } from '../../test/tls/certificates.ts';
import { CertificateFolder, paths } from '../../test/tls/files.ts';
import type { PeerTrust } from './http-pool.ts';
import {
  fakeAgent,
  fakeRouter,
  testRuntime,
  type FakeAgent,
  type FakeRouter,
  type LogLine,
} from './link-fakes.ts';
import type { LinkServerOptions } from './link-server.ts';
import { TlsStore } from './tls-material.ts';
import type { ClientAuth } from './tls-server.ts';

const folder = new CertificateFolder();
const store = new TlsStore(testRuntime());
const running: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const stop of running.splice(0).reverse()) await stop();
});
afterAll(() => {
  store.close();
  folder.remove();
});

const authority = makeAuthority('mesh ca');
const stranger = makeAuthority('another ca');
const ca = folder.put('mesh.crt', authority.cert);
const otherCa = folder.put('another.crt', stranger.cert);
const DATE = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`;
const HERE = { commonName: 'router', names: ['localhost', '127.0.0.1'] };

let named = 0;
const fileOf = (made: MadeCertificate) => folder.write(`cert-${(named += 1)}`, made);

const trust = (changes: Partial<PeerTrust> & { own?: MadeCertificate; caFile?: string } = {}) => {
  const { own, caFile = ca, serverName = null } = changes;
  const pair = own === undefined ? {} : fileOf(own);
  return { material: store.open(paths({ ca: caFile, ...pair })), serverName };
};

async function router(
  own: MadeCertificate = authority.issue(HERE),
  clientAuth: ClientAuth = 'none',
  options: Partial<LinkServerOptions> = {},
): Promise<FakeRouter & { lines: LogLine[]; files: { cert: string; key: string } }> {
  const files = fileOf(own);
  const runtime = testRuntime();
  const material = store.open(paths({ ...files, ca }));
  const started = await fakeRouter({ ...runtime, tls: { material, clientAuth }, ...options });
  running.push(() => started.server.close());
  return { ...started, lines: runtime.lines, files };
}

function agent(
  port: number,
  options: Parameters<typeof fakeAgent>[1] = {},
  host = '127.0.0.1',
): FakeAgent {
  const started = fakeAgent([`wss://${host}:${port}`], { trust: trust(), ...options });
  running.push(() => started.client.close());
  return started;
}

async function until(condition: () => boolean): Promise<void> {
  await vi.waitFor(() => expect(condition()).toBe(true), { timeout: 4_000, interval: 5 });
}

const refusal = async ({ lines }: FakeAgent): Promise<LogLine> => {
  await until(() => lines.some(({ msg }) => msg === 'no link to router'));
  return lines.find(({ msg }) => msg === 'no link to router') as LogLine;
};

describe('a router that speaks TLS', () => {
  test('is linked by agents that trust its CA', async () => {
    const { port, hellos } = await router();
    agent(port);
    agent(port, {}, 'localhost');
    await until(() => hellos.length === 2);
  });

  test.each<[string, MadeCertificate, Partial<Parameters<typeof trust>[0]>, string, RegExp]>([
    [
      'of another CA',
      authority.issue(HERE),
      { caFile: otherCa },
      'certificate_untrusted',
      new RegExp(
        `^wss://127\\.0\\.0\\.1:\\d+: its certificate CN=router \\(until ${DATE}\\) does not come from a CA of .*another\\.crt$`,
      ),
    ],
    [
      'for another name',
      authority.issue({ commonName: 'router', names: ['router.internal'] }),
      {},
      'certificate_name',
      new RegExp(
        `^wss://127\\.0\\.0\\.1:\\d+: its certificate CN=router \\(until ${DATE}\\) is for DNS:router\\.internal, not for 127\\.0\\.0\\.1`,
      ),
    ],
  ])(
    '%s is not linked: one line with peer, subject, date',
    async (_case, own, wish, reason, line) => {
      const { port, hellos } = await router(own);
      const dialling = agent(port, { trust: trust(wish) });
      expect(await refusal(dialling)).toMatchObject({
        reason,
        problem: expect.stringMatching(line) as string,
      });
      expect(hellos).toEqual([]);
    },
  );

  test('whose certificate has expired is not linked: one line with peer, subject, date', async () => {
    // It expires while it serves: no router starts with such a one.
    const wallMs = () => Date.now() + 40 * 86_400_000 * -1;
    const runtime = testRuntime();
    const past = new TlsStore({ ...runtime, clock: { ...runtime.clock, wallMs } });
    const old = authority.issue({ ...HERE, fromDays: -60, untilDays: -20 });
    const material = past.open(paths(fileOf(old)));
    running.push(() => past.close());
    const { port } = await router(undefined, 'none', { tls: { material, clientAuth: 'none' } });
    const line = new RegExp(
      `^wss://127\\.0\\.0\\.1:\\d+: the certificate CN=router expired on ${DATE}$`,
    );
    expect(await refusal(agent(port))).toMatchObject({
      reason: 'certificate_expired',
      problem: expect.stringMatching(line) as string,
    });
  });

  test('is linked under the name that its certificate has, where the agent is told it', async () => {
    const { port, hellos } = await router(
      authority.issue({ commonName: 'r', names: ['router.internal'] }),
    );
    agent(port, { trust: trust({ serverName: 'router.internal' }) });
    await until(() => hellos.length === 1);
  });

  test('is told from one that does not', async () => {
    const plain = await fakeRouter();
    running.push(() => plain.server.close());
    expect(await refusal(agent(plain.port))).toMatchObject({
      reason: 'no_tls',
      problem: `wss://127.0.0.1:${plain.port}: does not speak TLS`,
    });
  });

  test('says which clients failed to shake hands, and why', async () => {
    const failed: string[] = [];
    const handshakeFailed = (remote: string, reason: string) =>
      void failed.push(`${remote} ${reason}`);
    const { port } = await router(undefined, 'none', { handshakeFailed });
    const plain = fakeAgent([`ws://127.0.0.1:${port}`]);
    running.push(() => plain.client.close());
    await until(() => failed.includes('127.0.0.1 it spoke plain HTTP'));
  });

  test('takes a new certificate without ending a link', async () => {
    const { port, hellos, files, ends } = await router();
    const early = agent(port);
    await until(() => hellos.length === 1);
    const next = stranger.issue({ commonName: 'next', names: ['127.0.0.1'] });
    folder.put(files.cert.slice(folder.path.length + 1), next.cert);
    folder.put(files.key.slice(folder.path.length + 1), next.key);
    store.look();
    expect(await refusal(agent(port))).toMatchObject({ reason: 'certificate_untrusted' });
    agent(port, { trust: trust({ caFile: otherCa }) });
    await until(() => hellos.length === 2);
    expect(ends).toEqual([]);
    expect(early.client.links()).toHaveLength(1);
  });
});

describe('a router that asks agents for certificates', () => {
  const certified = (names: string[], from = authority) =>
    trust({ own: from.issue({ commonName: names[0] ?? 'agent', names }) });
  const rules: LinkServerOptions['rules'] = () => ({
    credentials: [{ secret: 'mesh-secret', speaksFor: null }],
    certificates: [{ names: ['*.llama.agents'], speaksFor: ['llama'] }],
  });

  test('takes those of its CAs and refuses everybody else, whatever secret they have', async () => {
    const open: LinkServerOptions['rules'] = () => ({
      credentials: [],
      certificates: [{ names: null, speaksFor: null }],
    });
    const { port, hellos, server, lines } = await router(undefined, 'required', { rules: open });
    agent(port, { trust: certified(['agent-1']) });
    await until(() => hellos.length === 1);
    const without = agent(port, { secret: 'mesh-secret' });
    const strange = agent(port, { trust: certified(['agent-2'], stranger) });
    expect(await refusal(without)).toMatchObject({ reason: 'unauthorized' });
    expect(await refusal(strange)).toMatchObject({ reason: 'unauthorized' });
    expect(server.stats().refusedUpgrades).toBeGreaterThanOrEqual(2);
    const warned = lines.filter(({ msg }) => msg === 'link refused: certificate');
    expect(warned.map(({ problem }) => problem)).toEqual([
      'none was shown',
      expect.stringMatching(
        new RegExp(
          `^its certificate CN=agent-2 \\(until ${DATE}\\) does not come from a CA of ours`,
        ),
      ),
    ]);
    expect(hellos).toHaveLength(1);
  });

  test('says that one has expired, with subject and date', async () => {
    const { port, lines } = await router(undefined, 'required');
    const runtime = testRuntime();
    const past = new TlsStore({
      ...runtime,
      clock: { ...runtime.clock, wallMs: () => Date.now() - 40 * 86_400_000 },
    });
    running.push(() => past.close());
    const old = fileOf(authority.issue({ commonName: 'agent-3', fromDays: -60, untilDays: -20 }));
    const dialling = agent(port, {
      trust: { material: past.open(paths({ ca, ...old })), serverName: null },
    });
    await refusal(dialling);
    expect(lines.find(({ msg }) => msg === 'link refused: certificate')?.['problem']).toMatch(
      new RegExp(`^the certificate CN=agent-3 expired on ${DATE}$`),
    );
  });

  test.each<[ClientAuth, string[] | null, string | null, boolean]>([
    ['optional', ['a.llama.agents'], null, true],
    ['optional', ['a.other.agents'], null, false],
    ['optional', null, 'mesh-secret', true],
    ['optional', null, 'guess', false],
    ['required', ['a.other.agents'], 'mesh-secret', true],
    ['required', null, 'mesh-secret', false],
    ['none', ['a.llama.agents'], null, false],
  ])('%s, certificate %s, secret %s: links %s', async (clientAuth, names, secret, links) => {
    const { port, hellos } = await router(undefined, clientAuth, { rules });
    const dialling = agent(port, { secret, trust: names === null ? trust() : certified(names) });
    if (links) await until(() => hellos.length === 1);
    else expect(await refusal(dialling)).toMatchObject({ reason: 'unauthorized' });
  });
});
