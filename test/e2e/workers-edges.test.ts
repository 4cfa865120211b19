// Workers where something is missing: a worker that stands still, certificates that change, a parent that is killed, a
// machine that gives no processes.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { get } from 'node:https';
import type { TLSSocket } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { WorkerStatus } from '../../router/regional/status.ts';
import { makeAuthority } from '../tls/certificates.ts';
import { CertificateFolder } from '../tls/files.ts';
import { Fleet } from './fleet.ts';
import { until } from './until.ts';

const authority = makeAuthority('Test CA');
const wishes = { commonName: 'router', names: ['127.0.0.1'] };
let folder: CertificateFolder;
let fleet: Fleet;
let workers: readonly WorkerStatus[];

beforeAll(async () => {
  folder = new CertificateFolder();
  const { cert, key } = folder.write('router', authority.issue(wishes));
  fleet = await Fleet.open(`
router:
  workers: 2
  clients: { tls: { cert: ${cert}, key: ${key} } }
  links: { secrets: [a-secret-of-the-links] }
`);
  await fleet.startRouter();
  ({ workers = [] } = await fleet.whenStatus(({ workers: now = [] }) => now.length === 2));
}, 60_000);

afterAll(async () => {
  await fleet.close();
  folder.remove();
});

/** What a new connection gets: the certificate's serial number, and the status. */
async function connection(): Promise<{ serial: string; status: number }> {
  const { clientsPort: port } = fleet.ports;
  const asked = get({
    host: '127.0.0.1',
    port,
    path: '/v1/models',
    ca: authority.cert,
    agent: false,
  });
  const [answer] = (await once(asked, 'response')) as [IncomingMessage];
  const { serialNumber } = (answer.socket as TLSSocket).getPeerCertificate();
  answer.resume();
  await once(answer, 'end');
  return { serial: serialNumber, status: answer.statusCode ?? 0 };
}

const four = () => Promise.all(Array.from({ length: 4 }, connection));
const admin = async (path: string): Promise<string> => {
  const { body } = await request(`http://127.0.0.1:${fleet.ports.adminPort}${path}`);
  return body.text();
};

describe('TLS', () => {
  test('is spoken by every worker, and a certificate that changes reaches each', async () => {
    const before = await four();
    expect(before.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(new Set(before.map(({ serial }) => serial)).size).toBe(1);
    folder.write('router', authority.issue(wishes));
    await until(async () => {
      const serials = new Set((await four()).map(({ serial }) => serial));
      return serials.size === 1 && !serials.has(before[0]?.serial ?? '');
    });
  });
});

describe('a worker that stands still', () => {
  test('is passed over by connections and scrapes, named, and there again afterwards', async () => {
    const pid = workers[1]?.pid ?? 0;
    const counted = await admin('/metrics');
    process.kill(pid, 'SIGSTOP');
    try {
      const scraped = await admin('/metrics');
      expect(scraped).toContain('spillway_worker_silent{worker="2"} 1');
      expect(scraped).toContain('spillway_worker_silent{worker="1"} 0');
      expect(scraped.split('\n').length).toBe(counted.split('\n').length);
      await until(async () =>
        (await admin('/readyz?verbose')).includes('[-] worker 2: silent for'),
      );
      // The first may be handed to it before it is known to hang; it waits, and nobody else does.
      const waiting = [connection(), connection(), connection()];
      expect((await Promise.any(waiting)).status).toBe(200);
      process.kill(pid, 'SIGCONT');
      for (const each of await Promise.all(waiting)) expect(each.status).toBe(200);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await until(async () =>
      (await admin('/metrics')).includes('spillway_worker_silent{worker="2"} 0'),
    );
  });

  test('and is killed then has lost no connection that it had not taken', async () => {
    const pid = workers[1]?.pid ?? 0;
    process.kill(pid, 'SIGSTOP');
    // They go to both: whoever has fewer gets the next.
    const waiting = [connection(), connection(), connection()];
    await Promise.any(waiting);
    process.kill(pid, 'SIGKILL');
    for (const each of await Promise.all(waiting)) expect(each.status).toBe(200);
    ({ workers = [] } = await fleet.whenStatus(({ workers: now = [] }) =>
      now.every((worker) => worker.state === 'up' && worker.pid !== pid),
    ));
  });
});

test('a parent that is killed takes its workers with it', async () => {
  await fleet.router?.end('SIGKILL');
  await until(() => workers.every(({ pid }) => !isAlive(pid ?? 0)));
});

test('where no processes can be had, one serves alone and says so', async () => {
  const main = fileURLToPath(new URL('../../bin/main.ts', import.meta.url));
  const permissions = ['--permission', '--allow-fs-read=*', '--allow-fs-write=*', '--allow-addons'];
  const listen = ['listen', 'links', 'admin'].flatMap((name) => [`--${name}`, '127.0.0.1:0']);
  const words = [...permissions, main, 'router', '--workers', '2', ...listen];
  const child = spawn(process.execPath, [...words, '--log-format', 'json'], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.on('data', (piece) => (said += String(piece)));
  await until(() => said.includes('"router listening"'), { says: () => said });
  expect(said).toMatch(
    /"problem":"[^"]*restricted[^"]*","msg":"no workers here: one process serves alone"/,
  );
  const exit = once(child, 'exit');
  child.kill('SIGKILL');
  await exit;
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
