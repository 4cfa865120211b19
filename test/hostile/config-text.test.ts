// A configuration file that is cut, spoilt, or made to hurt: an error with its place, or a whole configuration. Never a
// crash, never half of one, and never seconds of work.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, mkdirSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadFleet, parseFleet } from '../../shared/config/load.ts';

const FLEET = [
  'region: fra',
  'log: { level: info }',
  'pools:',
  '  - id: llama',
  '    apiKey: "${ENGINE_KEY}"',
  '    engineCidrs: [10.0.0.0/8]',
  '  - id: größer # not in ASCII',
  'models:',
  '  meta/llama: { pool: llama, engineModel: Llama-3.1-8B }',
  '  other: { pool: größer }',
  'router:',
  '  clients:',
  '    listen: 127.0.0.1:8080',
  '  routing:',
  '    holdMs: 80',
  '    tieRatio: 0.05',
  '',
].join('\n');

const environment = { ENGINE_KEY: 'key' };
const parse = (text: string) => parseFleet({ file: 'fleet.yaml', text, environment, overlays: [] });
const errorOf = (text: string): string => {
  const result = parse(text);
  return result.ok ? 'no error' : result.error;
};

describe('a text', () => {
  test('cut at every character is an error with its place, or a valid configuration', () => {
    expect(parse(FLEET).ok).toBe(true);
    let valid = 0;
    for (let length = 0; length < FLEET.length; length += 1) {
      const result = parse(FLEET.slice(0, length));
      if (result.ok) valid += 1;
      else expect(result.error).toMatch(/^fleet\.yaml(:\d+:\d+)?: /);
    }
    // Whole lines of a YAML are a YAML; what cuts a reference or a quote never is.
    expect(valid).toBeGreaterThan(0);
    expect(valid).toBeLessThan(FLEET.length / 2);
  });

  test('with any one character changed is read or refused, and never throws', () => {
    const signs = ['\u0000', '\t', '"', '{', '[', ':', '-', '&', '*', '!', '%', '@', '\uFFFF'];
    for (let at = 0; at < FLEET.length; at += 1) {
      const sign = signs[at % signs.length] ?? '';
      const result = parse(FLEET.slice(0, at) + sign + FLEET.slice(at + 1));
      if (!result.ok) expect(result.error).toMatch(/^fleet\.yaml(:\d+:\d+)?: /);
    }
  });

  const aliases = ['a0: &a0 [x,x,x,x,x,x,x,x,x]'];
  for (let at = 1; at < 10; at += 1) aliases.push(`a${at}: &a${at} [${`*a${at - 1},`.repeat(9)}]`);

  test.each([
    ['aliases of aliases of aliases', aliases.join('\n'), /Excessive alias count/],
    ['very many aliases', `a: &a 1\nb: [${'*a,'.repeat(200)}]`, /more than 100 aliases/],
    ['an alias of nothing', 'region: *nope', /nothing is anchored as &nope before/],
    ['an alias inside of itself', 'region: &a [*a]', /\*a stands inside of &a/],
    ['a map inside of itself', 'models: &m { x: *m }', /\*m stands inside of &m/],
    ['a million brackets', '['.repeat(1_000_000), /is nested deeper than 64 levels/],
    ['braces in braces', '{a: '.repeat(100_000), /is nested deeper than 64 levels/],
    ['dashes after dashes', '- '.repeat(500_000), /is nested deeper than 64 levels/],
    ['a stair of keys', stair(1_400), /./],
    ['a million commas', `[${','.repeat(900_000)}]`, /more than 150000 words and marks/],
    ['60,000 unknown keys', keys(60_000), /more than 150000 words and marks/],
    ['15,000 unknown keys', keys(15_000), /and \d+ more problems/],
    ['a key of a megabyte', `? ${'x'.repeat(1_000_000)}\n: 1`, /…/],
    ['tabs', 'router:\n\trouting: {}', /^fleet\.yaml:2:1: Tabs/],
    [
      'the same key twice',
      'region: a\nregion: b',
      /^fleet\.yaml:2:1: this key stands here a second/,
    ],
    ['a merge key', 'pools: [&a { id: a }, { <<: *a, id: b }]', /pools\[1\]\.<<: unknown key/],
    ['code', 'region: !!js/function "function () {}"', /^fleet\.yaml:1:9: Unresolved tag/],
    ['an own tag', 'region: !env SECRET', /Unresolved tag/],
    ['a prototype', 'models: { __proto__: { pool: default } }', /unknown key: __proto__/],
    ['a map for a key', '? { a: b }\n: c', /a key is a plain word/],
    ['two documents', 'region: a\n---\nregion: b', /multiple documents/],
    ['no number', 'router: { routing: { holdMs: .nan } }', /holdMs/],
    ['a number beyond all', 'router: { routing: { holdMs: 1e999 } }', /holdMs/],
    ['a near miss', 'rooter: {}', /did you mean "router"/],
  ])('of %s is refused in words', (_, text, why) => {
    const error = errorOf(text);
    expect(error).toMatch(why);
    expect(error.length).toBeLessThan(64 * 1024);
    expect(({} as Record<string, unknown>)['pool']).toBeUndefined();
  });

  test.each([
    ['missing', undefined, 'is not set'],
    ['empty', '', 'is empty'],
    ['a line with its end', 'secret\n', 'must be 1 to 512 visible ASCII characters'],
  ])('whose secret is %s is refused, and the secret is not shown', (_, secret, why) => {
    const environment = { ENGINE_KEY: secret };
    const result = parseFleet({ file: 'f.yaml', text: FLEET, environment, overlays: [] });
    expect(!result.ok && result.error).toContain(why);
    expect(!result.ok && result.error).not.toContain('secret\n');
  });
});

describe('a file', () => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'spillway-hostile-'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  const written = (name: string, content: string | Buffer): string => {
    const file = join(folder, name);
    writeFileSync(file, content);
    return file;
  };
  const refusal = (file: string): string => {
    const result = loadFleet(file, environment, []);
    return result.ok ? 'no error' : result.error;
  };

  test('of bytes that are no text is refused with their place', () => {
    const latin = Buffer.from('region: fra\nlog: { level: "inf\u00f6" }\n', 'latin1');
    expect(refusal(written('latin.yaml', latin))).toMatch(/latin\.yaml:2:19: is no UTF-8 text$/);
    const cut = Buffer.from(FLEET).subarray(0, Buffer.from(FLEET).indexOf(0xb6));
    expect(refusal(written('cut.yaml', cut))).toMatch(/cut\.yaml:7:11: is no UTF-8 text$/);
  });

  test('that is none is refused at once: nobody waits for a pipe', () => {
    mkdirSync(join(folder, 'folder'));
    expect(refusal(join(folder, 'folder'))).toMatch(/is a directory, not a file$/);
    execFileSync('mkfifo', [join(folder, 'pipe')]);
    expect(refusal(join(folder, 'pipe'))).toMatch(/is a pipe, not a file$/);
    expect(refusal('/dev/zero')).toBe('/dev/zero: is a device, not a file');
    symlinkSync('nowhere', join(folder, 'dangling'));
    expect(refusal(join(folder, 'dangling'))).toMatch(/cannot be read: ENOENT/);
    symlinkSync('ring', join(folder, 'ring'));
    expect(refusal(join(folder, 'ring'))).toMatch(/cannot be read: ELOOP/);
  });

  test('of 100 MiB is refused without being read', () => {
    const file = written('huge.yaml', '');
    truncateSync(file, 100 * 1024 * 1024);
    expect(refusal(file)).toBe(`${file}: is larger than 1048576 bytes`);
  });

  test('with a mark of its byte order is read', () => {
    expect(refusal(written('bom.yaml', `\uFEFF${FLEET}`))).toBe('no error');
  });
});

function keys(count: number): string {
  return Array.from({ length: count }, (_, at) => `k${at}: 1`).join('\n');
}

function stair(count: number): string {
  return Array.from({ length: count }, (_, at) => `${' '.repeat(at)}a:`).join('\n');
}
