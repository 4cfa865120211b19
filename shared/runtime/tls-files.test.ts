import { afterAll, describe, expect, test } from 'vitest';
import { makeAuthority } from '../../test/tls/certificates.ts';
import { CertificateFolder, paths } from '../../test/tls/files.ts';
import { systemClock } from './clock.ts';
import { readTls, type TlsPaths } from './tls-files.ts';

const folder = new CertificateFolder();
afterAll(() => folder.remove());
const authority = makeAuthority('test ca');
const ca = folder.put('ca.crt', authority.cert);
const good = folder.write('good', authority.issue({ commonName: 'router', names: ['localhost'] }));
const expired = folder.write(
  'old',
  authority.issue({ commonName: 'router', fromDays: -9, untilDays: -2 }),
);
const early = folder.write('new', authority.issue({ commonName: 'router', fromDays: 2 }));
const empty = folder.put('empty.crt', '');
const damaged = folder.put('damaged.crt', authority.cert.replace(/\n.{30}/, '\nAAAA'));
const date = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`;

const read = (changes: Partial<TlsPaths>) => readTls(paths(changes), systemClock.wallMs());

test('a certificate, its key and a CA are taken, with subject and date', () => {
  const reading = read({ ...good, ca });
  if (!reading.ok) throw new Error(reading.error);
  expect(reading.own).toMatchObject({ file: good.cert, subject: 'CN=router' });
  const days = ((reading.own?.notAfterMs ?? 0) - systemClock.wallMs()) / 86_400_000;
  expect(days).toBeGreaterThan(29);
  expect(days).toBeLessThan(31);
  expect(Object.keys(reading.pems).toSorted()).toEqual(['ca', 'cert', 'key']);
});

describe('one line says which file and why', () => {
  test.each<[string, Partial<TlsPaths>, RegExp]>([
    ['absent', { ...good, cert: '/nowhere/a.crt' }, /^\/nowhere\/a\.crt: cannot be read: ENOENT/],
    ['empty', { ...good, cert: empty }, /empty\.crt: holds no certificate in PEM form$/],
    ['damaged', { ca: damaged }, /damaged\.crt: its certificate 1 is damaged$/],
    [
      'no key',
      { ...good, key: ca },
      /ca\.crt: holds no private key in PEM form without a passphrase$/,
    ],
    [
      "another's key",
      { ...good, key: early.key },
      /new\.key: is not the key of the certificate CN=router \(.*good\.crt\)$/,
    ],
    ['expired', expired, new RegExp(`old\\.crt: the certificate CN=router expired on ${date}$`)],
    [
      'early',
      early,
      new RegExp(`new\\.crt: the certificate CN=router is not valid before ${date}$`),
    ],
    [
      'a CA that expired',
      { ca: expired.cert },
      new RegExp(`old\\.crt: the certificate CN=router expired on ${date}$`),
    ],
  ])('%s', (_case, changes, line) => {
    const reading = read(changes);
    expect(reading.ok ? '' : reading.error).toMatch(line);
    expect(reading.ok ? '' : reading.error).not.toContain('\n');
  });

  test('of several CAs one that is valid is enough', () => {
    const both = folder.put(
      'both.crt',
      `${authority.issue({ commonName: 'x', untilDays: -1, fromDays: -2 }).cert}${authority.cert}`,
    );
    expect(read({ ca: both }).ok).toBe(true);
  });
});
