import { connect, type SecureVersion } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { makeAuthority, type MadeCertificate } from '../../test/tls/certificates.ts';
import { CertificateFolder, paths } from '../../test/tls/files.ts';
import { testRuntime } from './link-fakes.ts';
import { TlsStore } from './tls-material.ts';
import { peerCertificate } from './tls-peer.ts';
import { createHttpServer } from './tls-server.ts';

const stops: (() => void)[] = [];
afterEach(() => {
  for (const stop of stops.splice(0)) stop();
});

/** A server that answers with what it makes of its client's certificate. */
async function opened() {
  const folder = new CertificateFolder();
  const store = new TlsStore(testRuntime());
  const authority = makeAuthority('clients ca');
  const own = folder.write('own', authority.issue({ commonName: 'server', names: ['127.0.0.1'] }));
  const material = store.open(paths({ ...own, ca: folder.put('ca.crt', authority.cert) }));
  const server = createHttpServer(
    { http: {}, tls: { material, clientAuth: 'required' }, handshakeFailed: () => undefined },
    ({ socket }, response) => response.end(peerCertificate(socket, Date.now()).kind),
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  stops.push(
    () => server.close(),
    () => store.close(),
    () => folder.remove(),
  );
  const { port } = server.address() as { port: number };
  return { folder, store, authority, port };
}

interface Visit {
  readonly kind: string;
  readonly reused: boolean;
  readonly session: Buffer | undefined;
}

function visit(
  port: number,
  options: MadeCertificate & {
    ca: string;
    maxVersion: SecureVersion;
    session?: Buffer | undefined;
  },
): Promise<Visit> {
  return new Promise((resolve, reject) => {
    let { session } = options;
    let text = '';
    let reused = false;
    const socket = connect({ host: '127.0.0.1', port, ...options }, () => {
      reused = socket.isSessionReused();
      socket.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
    });
    socket.on('session', (next: Buffer) => (session = next));
    socket.on('data', (piece) => (text += String(piece)));
    socket.on('error', reject);
    socket.once('close', () => {
      resolve({ kind: /(\w+)$/.exec(text)?.[1] ?? '', reused, session });
    });
  });
}

describe.each<SecureVersion>(['TLSv1.3', 'TLSv1.2'])(
  'a session of %s that is resumed',
  (maxVersion) => {
    test('is of the client that began it, until the CAs change', async () => {
      const { folder, store, authority, port } = await opened();
      const client = {
        ...authority.issue({ commonName: 'client' }),
        ca: authority.cert,
        maxVersion,
      };
      const first = await visit(port, client);
      const again = await visit(port, { ...client, session: first.session });
      expect([first.kind, again.kind, again.reused]).toEqual(['valid', 'valid', true]);
      folder.put('ca.crt', makeAuthority('other ca').cert);
      store.look();
      const late = await visit(port, { ...client, session: again.session });
      expect([late.kind, late.reused]).toEqual(['invalid', false]);
    });
  },
);
