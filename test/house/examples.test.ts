// The example configurations are good, and every command line that help, README, guides and examples show is one.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { routingTestProblems } from '../../bin/cli/routing-tests.ts';
import { buildProgram } from '../../bin/program.ts';
import { loadFleet, parseFleet } from '../../shared/config/load.ts';
import { check, helpOf } from './command-line.ts';

const ROOT = join(import.meta.dirname, '../..');
const FOLDER = join(ROOT, 'docs/examples');
const SECRETS = {
  SPILLWAY_LINK_SECRET: 'a-secret-of-a-link',
  ENGINE_KEY: 'a-key',
  AFFINITY_SECRET: 'a-secret-of-keys',
  ...Object.fromEntries(
    ['FRA', 'AMS', 'SIN'].flatMap((region) => [
      [`${region}_LINK_SECRET`, `a-link-secret-of-${region}`],
      [`${region}_TIER_KEY`, `a-tier-key-of-${region}`],
    ]),
  ),
};

describe('docs/examples', () => {
  const files = readdirSync(FOLDER).filter((file) => file.endsWith('.yaml'));

  it('has a laptop, one region and three', () => {
    expect(files.sort()).toEqual(['laptop.yaml', 'one-region.yaml', 'three-regions.yaml']);
  });

  it.each(files)('%s is valid, and routes as it expects', (file) => {
    const text = readFileSync(join(FOLDER, file), 'utf8');
    const input = { file, text, environment: SECRETS, overlays: [] };
    const result = parseFleet({ ...input, checks: routingTestProblems });
    expect(result.ok ? '' : result.error).toBe('');
  });
});

interface Shown {
  readonly environment: Readonly<Record<string, string>>;
  readonly words: readonly string[];
}

/** `A=x spillway agent …` and `bin/spillway …`, over lines that end in a backslash, comments or not. */
function commandLines(text: string): Shown[] {
  const joined = text.replaceAll(/\\\n[#\s]*/g, '');
  const pattern =
    /((?:[A-Z_]+=\S+ )*)(?:bin\/)?spillway ((?:demo|gameday|global|up|router|agent|engine-sim|validate)\b[^`\n]*)/g;
  return Array.from(joined.matchAll(pattern), ([, variables = '', command = '']) => ({
    environment: Object.fromEntries(
      variables
        .trim()
        .split(' ')
        .filter((pair) => pair !== '')
        .map((pair) => pair.split('=') as [string, string]),
    ),
    words: (command.split(/ {2,}/)[0] ?? '').trim().split(' '),
  }));
}

const pages = {
  ...Object.fromEntries(
    ['README.md', 'docs/global.md', 'docs/deploy.md', 'docs/security.md', 'docs/engines.md'].map(
      (page) => [page, readFileSync(join(ROOT, page), 'utf8')],
    ),
  ),
  ...Object.fromEntries(
    readdirSync(FOLDER).map((file) => [file, readFileSync(join(FOLDER, file), 'utf8')]),
  ),
  ...Object.fromEntries(
    [buildProgram(), ...buildProgram().commands].map((command) => [
      `${command.name()} --help`,
      helpOf(command).split('Examples:')[1] ?? '',
    ]),
  ),
};
const shown = Object.entries(pages).flatMap(([page, text]) =>
  commandLines(text).map((line) => ({ page, ...line })),
);

describe('a command line', () => {
  it('is found on every kind of page', () => {
    const found = new Set(shown.map(({ page }) => page));
    for (const page of ['README.md', 'one-region.yaml', 'up --help']) expect(found).toContain(page);
  });

  it.each(shown)('of $page exists: $words', ({ words }) => {
    check(words);
  });

  it.each(shown.filter(({ words, page }) => words[0] === 'validate' && page !== 'README.md'))(
    'that validates names the variables that the file needs: $words',
    ({ environment, words }) => {
      const file = words.at(-1) ?? '';
      if (!file.startsWith('docs/')) return;
      const result = loadFleet(join(ROOT, file), environment, []);
      expect(result.ok ? '' : result.error).toBe('');
    },
  );
});
