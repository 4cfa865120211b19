// Who may come in, as processes say it: what would be open by mistake does not start, and says so in one line.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { request, Agent } from 'undici';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { makeAuthority } from '../../test/tls/certificates.ts';
import { CertificateFolder } from '../../test/tls/files.ts';
import { until } from '../../test/e2e/until.ts';
import { Spawned } from '../spawned.ts';

const SPILLWAY = join(import.meta.dirname, '../spillway');
const folder = new CertificateFolder();
const authority = makeAuthority('test ca');
const HERE = { commonName: 'router', names: ['127.0.0.1'] };
const old = folder.write('old', authority.issue({ ...HERE, fromDays: -3, untilDays: -1 }));

const started: Spawned[] = [];
afterEach(async () => {
  await Promise.all(started.splice(0).map((each) => each.kill()));
});
afterAll(() => folder.remove());

function spillway(words: readonly string[], env: Record<string, string> = {}, input = '') {
  const { status, stdout, stderr } = spawnSync(SPILLWAY, words, {
    encoding: 'utf8',
    timeout: 20_000,
    input,
    env: { PATH: process.env['PATH'], ...env },
  });
  return { status, stdout, stderr };
}

describe('a router that anybody could use does not start', () => {
  test.each<[string, string[], Record<string, string>, RegExp]>([
    [
      'links with a secret that can be guessed',
      ['--links', '0.0.0.0:0'],
      { SPILLWAY_LINK_SECRET: 'short' },
      /^spillway router: SPILLWAY_LINK_SECRET: is shorter than 16 characters, and agents come from other machines$/,
    ],
    [
      'with a certificate that has expired',
      ['--tls-cert', old.cert, '--tls-key', old.key],
      {},
      /^spillway router: \/.*old\.crt: the certificate CN=router expired on \d{4}-\d\d-\d\dT[\d:]+Z$/,
    ],
  ])('%s', (_case, words, env, line) => {
    const { status, stderr } = spillway(['router', ...words], env);
    expect(status).toBe(1);
    expect(stderr.trimEnd()).toMatch(line);
    expect(stderr.trimEnd()).not.toContain('\n');
  });
});

test('an agent does not start with CAs that cannot be read', () => {
  const words = ['agent', '--engine', 'http://127.0.0.1:9', '--router', 'wss://127.0.0.1:9'];
  const { status, stderr } = spillway([
    ...words,
    '--listen',
    '127.0.0.1:0',
    '--router-ca',
    '/nowhere/ca.crt',
  ]);
  expect(status).toBe(1);
  expect(stderr).toMatch(/^spillway agent: \/nowhere\/ca\.crt: cannot be read: ENOENT.*\n$/);
});

describe('a key', () => {
  test('that is made opens a router whose file has its hash, and a key taken out of the file no longer does', async () => {
    const made = spillway(['key', 'new', '--name', 'chat-team']).stdout;
    const key = /^key: +(\S+)$/m.exec(made)?.[1] ?? '';
    const hash = /^hash: +(\S+)$/m.exec(made)?.[1] ?? '';
    expect(key).toMatch(/^sk-spillway-[\w-]{43}$/);
    expect(hash).toBe(`sha256:${createHash('sha256').update(key).digest('hex')}`);
    const line = /^ {2}- .*$/m.exec(made)?.[0] ?? '';
    const file = join(folder.path, 'fleet.yaml');
    const pair = folder.write('router', authority.issue(HERE));
    const config = (keys: string) => `router:
  links: { listen: '127.0.0.1:0' }
  admin: { listen: '127.0.0.1:0' }
  clients:
    listen: '127.0.0.1:0'
    tls: { cert: ${pair.cert}, key: ${pair.key} }
    keys:
    ${keys}
`;
    writeFileSync(file, config(line));
    const router = new Spawned(['router', '--config', file]);
    started.push(router);
    const [, port] = await router.printed(/"clientsPort":(\d+)/);
    const dispatcher = new Agent({ connect: { ca: authority.cert } });
    const models = async (authorization: string) => {
      const headers = { authorization };
      const answer = await request(`https://127.0.0.1:${port}/v1/models`, { dispatcher, headers });
      await answer.body.dump();
      return answer.statusCode;
    };
    expect(await models(`Bearer ${key}`)).toBe(200);
    expect(await models('Bearer guess')).toBe(401);
    writeFileSync(file, config(`  - { name: other, hash: 'sha256:${'0'.repeat(64)}' }`));
    await router.printed(/configuration taken/);
    await until(async () => (await models(`Bearer ${key}`)) === 401);
    folder.put('router.crt', 'broken');
    // What does not fit is looked at twice before it is said: the other file may still come.
    router.process.kill('SIGHUP');
    await router.printed(/configuration taken[^]*configuration taken/);
    router.process.kill('SIGHUP');
    await router.printed(/certificate files cannot be used: the last good ones stay/);
    expect(router.output).toContain(`${pair.cert}: holds no certificate in PEM form`);
    expect(router.output).not.toContain(key);
    await dispatcher.destroy();
  });

  test('of somebody else is hashed where it is long enough', () => {
    const key = 'k'.repeat(40);
    const { stdout } = spillway(['key', 'hash'], {}, `${key}\n`);
    expect(stdout.trim()).toBe(`sha256:${createHash('sha256').update(key).digest('hex')}`);
    const short = spillway(['key', 'hash'], {}, 'password\n');
    expect([short.status, short.stderr]).toEqual([1, expect.stringContaining('at least 32')]);
    expect(short.stderr).not.toContain('password');
  });
});
