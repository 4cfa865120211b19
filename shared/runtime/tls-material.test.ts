import { afterEach, describe, expect, test } from 'vitest';
import { makeAuthority, type CertificateWishes } from '../../test/tls/certificates.ts';
import { CertificateFolder, paths } from '../../test/tls/files.ts';
import { systemClock, type Clock } from './clock.ts';
import { testRuntime } from './link-fakes.ts';
import { ManualTime } from './manual-time.ts';
import { TlsStore } from './tls-material.ts';

const DAY_MS = 86_400_000;
const authority = makeAuthority('test ca');
let folder = new CertificateFolder();
afterEach(() => {
  folder.remove();
  folder = new CertificateFolder();
});

/** A store on virtual time; the wall clock is the real one, moved by the same steps. */
function opened(wishes: Partial<CertificateWishes> = {}, pollMs = 5_000) {
  const time = new ManualTime();
  const beganMs = systemClock.wallMs();
  const clock: Clock = { nowMs: () => time.nowMs(), wallMs: () => beganMs + time.nowMs() };
  const { log, lines } = testRuntime();
  let told = 0;
  const store = new TlsStore({ clock, timers: time, log, pollMs, onChange: () => (told += 1) });
  const made = authority.issue({ commonName: 'first', untilDays: 40, ...wishes });
  const files = folder.write('own', made);
  const material = store.open(paths(files));
  return { time, store, material, files, made, lines, told: () => told };
}

describe('certificate files', () => {
  test('are taken when both have changed, and owners are told once', () => {
    const { time, material, lines, told } = opened();
    let exchanged = 0;
    material.onChange(() => (exchanged += 1));
    const before = material.context;
    folder.write('own', authority.issue({ commonName: 'second', untilDays: 40 }));
    time.advance(5_000);
    expect(material.own?.subject).toBe('CN=second');
    expect(material.context).not.toBe(before);
    expect({ exchanged, told: told(), version: material.version }).toEqual({
      exchanged: 1,
      told: 1,
      version: 2,
    });
    expect(lines.map(({ msg, subject }) => [msg, subject])).toEqual([
      ['certificate files taken', 'CN=second'],
    ]);
    time.advance(60_000);
    expect(exchanged).toBe(1);
  });

  test('that are bad leave the old ones, with one warning that names the file and why', () => {
    const { time, material, lines } = opened();
    folder.put('own.crt', 'no certificate');
    time.advance(60_000);
    expect(material.own?.subject).toBe('CN=first');
    expect(lines).toEqual([
      expect.objectContaining({
        msg: 'certificate files cannot be used: the last good ones stay',
        problem: `${folder.path}/own.crt: holds no certificate in PEM form`,
      }),
    ]);
    folder.write('own', authority.issue({ commonName: 'second', untilDays: 40 }));
    time.advance(5_000);
    expect(material.own?.subject).toBe('CN=second');
  });

  test("of which only one has come yet are nobody's trouble", () => {
    const { time, material, lines } = opened();
    const next = authority.issue({ commonName: 'second', untilDays: 40 });
    folder.put('own.crt', next.cert);
    time.advance(5_000);
    expect(material.own?.subject).toBe('CN=first');
    folder.put('own.key', next.key);
    time.advance(5_000);
    expect(material.own?.subject).toBe('CN=second');
    expect(lines.map(({ msg }) => msg)).toEqual(['certificate files taken']);
  });

  test('are warned of once a day from two weeks before they expire', () => {
    const { time, lines } = opened({ untilDays: 15 }, DAY_MS / 24);
    const warned = () => lines.filter(({ msg }) => msg === 'certificate expires soon').length;
    time.advance(DAY_MS / 2);
    expect(warned()).toBe(0);
    time.advance(DAY_MS);
    expect(warned()).toBe(1);
    time.advance(DAY_MS);
    expect(warned()).toBe(2);
    time.advance(14 * DAY_MS);
    expect(new Set(lines.map(({ msg }) => msg))).toEqual(
      new Set(['certificate expires soon', 'certificate has expired']),
    );
  });

  test('named twice are read once, and forgotten when nobody uses them', () => {
    const { store, material, files } = opened();
    expect(store.open(paths(files))).toBe(material);
    expect(store.expiries()).toEqual([
      { labels: { file: files.cert }, value: (material.own?.notAfterMs ?? 0) / 1_000 },
    ]);
    store.retain(new Set());
    expect(store.expiries()).toEqual([]);
  });

  test('that cannot be used at the start are refused with their line', () => {
    const { store } = opened();
    expect(() => store.open(paths({ ca: '/nowhere/ca.crt' }))).toThrow(
      /^\/nowhere\/ca\.crt: cannot be read/,
    );
  });
});
