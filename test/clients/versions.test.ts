// The page for people names the versions that these tests were made with.

import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { PYTHON_OPENAI } from '../engines/python-client.ts';

const read = (path: string): string =>
  readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const pins = (JSON.parse(read('package.json')) as { devDependencies: Record<string, string> })
  .devDependencies;
const versions = [
  ...['openai', 'openai-6', 'ai', '@ai-sdk/openai-compatible', '@langchain/openai'].map(
    (name) => [name, pins[name]?.replace(/^npm:.*@/, '')] as const,
  ),
  ['@langchain/core', pins['@langchain/core']] as const,
  ['openai for Python', PYTHON_OPENAI] as const,
];

test.each(versions)('docs/clients.md names the version of %s', (_name, version) => {
  const rows = read('docs/clients.md')
    .split('\n')
    .filter((line) => line.startsWith('| '));
  const named = rows.map((line) => line.split('|')[2] ?? '').join(' ');
  expect(named.split(/[\s,]+/)).toContain(version);
});
