// `npm run docs`: writes the reference pages that are made from code. `--check` writes nothing and fails where a page
// on disk is not what the code says.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { configurationPage } from './generate-configuration.ts';
import { errorsPage, headersPage, metricsPage } from './generate-reference.ts';

const PAGES: Readonly<Record<string, () => string>> = {
  'configuration.md': configurationPage,
  'metrics.md': metricsPage,
  'headers.md': headersPage,
  'errors.md': errorsPage,
};

function onDisk(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

const check = process.argv.includes('--check');
let stale = 0;
for (const [name, make] of Object.entries(PAGES)) {
  const file = join(import.meta.dirname, name);
  const text = make();
  if (onDisk(file) === text) continue;
  if (!check) writeFileSync(file, text);
  else {
    stale += 1;
    console.error(`docs/${name} is not what the code says: run npm run docs`);
  }
}
process.exit(stale === 0 ? 0 : 1);
