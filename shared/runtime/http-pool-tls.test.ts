import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { makeAuthority, type MadeCertificate } from '../../test/tls/certificates.ts';
import { CertificateFolder, paths } from '../../test/tls/files.ts';
import { createHttpPools, type HttpPools, type PeerTrust } from './http-pool.ts';
import { testRuntime } from './link-fakes.ts';
import { TlsStore } from './tls-material.ts';

const folder = new CertificateFolder();
const store = new TlsStore(testRuntime());
afterAll(() => {
  store.close();
  folder.remove();
});
const authority = makeAuthority('engines ca');
const stranger = makeAuthority('another ca');
const ca = folder.put('engines.crt', authority.cert);
const DATE = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`;

let servers: Server[] = [];
let pools: HttpPools;
let refused: string[] = [];
afterEach(async () => {
  await pools.close();
  for (const server of servers) server.close();
  servers = [];
});

/** An engine that answers with the subject of the certificate that it was shown. */
async function engine({ cert, key }: MadeCertificate): Promise<string> {
  const options = { cert, key, ca: authority.cert, requestCert: true, rejectUnauthorized: false };
  const server = createServer(options, ({ socket }, response) => {
    response.end((socket as TLSSocket).getPeerX509Certificate()?.subject ?? 'nobody');
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function opened(): HttpPools {
  refused = [];
  pools = createHttpPools(1_000, (_origin, line) => refused.push(line));
  return pools;
}

const trusting = (changes: Partial<PeerTrust> = {}): PeerTrust => ({
  material: store.open(paths({ ca })),
  serverName: null,
  ...changes,
});

async function ask(origin: string, trust: PeerTrust | null): Promise<string> {
  const answer = await pools.get(origin, trust).request({ path: '/', method: 'GET' });
  return answer.body.text();
}

describe('an https engine', () => {
  test('is asked where a CA of its pool vouches for it, and shown our certificate', async () => {
    const origin = await engine(authority.issue({ commonName: 'e', names: ['127.0.0.1'] }));
    opened();
    expect(await ask(origin, trusting())).toBe('nobody');
    const own = folder.write('own', authority.issue({ commonName: 'router-1' }));
    const material = store.open(paths({ ca, ...own }));
    expect(await ask(origin, trusting({ material }))).toBe('CN=router-1');
  });

  test('is asked under the name that its certificate has', async () => {
    const origin = await engine(authority.issue({ commonName: 'e', names: ['engine.internal'] }));
    opened();
    expect(await ask(origin, trusting({ serverName: 'engine.internal' }))).toBe('nobody');
    await expect(ask(origin, trusting())).rejects.toMatchObject({
      code: 'ERR_TLS_CERT_ALTNAME_INVALID',
    });
    expect(refused).toEqual([
      expect.stringMatching(
        new RegExp(
          `^${origin}: its certificate CN=e \\(until ${DATE}\\) is for DNS:engine\\.internal, not for 127`,
        ),
      ),
    ]);
  });

  test.each<[string, () => MadeCertificate, RegExp]>([
    [
      'of another CA',
      () => stranger.issue({ commonName: 'e', names: ['127.0.0.1'] }),
      new RegExp(
        `: its certificate CN=e \\(until ${DATE}\\) does not come from a CA of .*engines\\.crt$`,
      ),
    ],
    [
      'that has expired',
      () => authority.issue({ commonName: 'e', names: ['127.0.0.1'], fromDays: -3, untilDays: -1 }),
      new RegExp(`: the certificate CN=e expired on ${DATE}$`),
    ],
  ])(
    'with a certificate %s is not asked: one line, however often it is tried',
    async (_case, made, line) => {
      const origin = await engine(made());
      opened();
      for (let i = 0; i < 3; i += 1) await expect(ask(origin, trusting())).rejects.toThrow(line);
      expect(refused).toEqual([expect.stringMatching(line)]);
    },
  );

  test('is verified anew when the CAs change, and never by the system where a pool names some', async () => {
    const origin = await engine(authority.issue({ commonName: 'e', names: ['127.0.0.1'] }));
    opened();
    folder.put('changing.crt', stranger.cert);
    const material = store.open(paths({ ca: `${folder.path}/changing.crt` }));
    await expect(ask(origin, trusting({ material }))).rejects.toThrow('does not come from');
    folder.put('changing.crt', authority.cert);
    store.look();
    expect(await ask(origin, trusting({ material }))).toBe('nobody');
    await expect(ask(origin, null)).rejects.toThrow(
      'does not come from a CA that the system trusts',
    );
  });
});
