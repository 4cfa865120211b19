// What of the product a result depends on: a digest of all code that runs in a router or an agent. A result is taken up again
// only where this digest is the same.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..', '..');
const FOLDERS = ['agent', 'bin', 'router', 'shared'] as const;

let known: string | null = null;

/** Read once: what changes while a benchmark runs is started by it all the same, so leave the tree alone meanwhile. */
export function productRevision(): string {
  known ??= revisionOf(ROOT);
  return known;
}

export function revisionOf(root: string): string {
  const hash = createHash('sha256').update(readFileSync(join(root, 'package-lock.json')));
  for (const folder of FOLDERS) {
    const files = readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' });
    for (const file of files.filter(isProduct).sort()) {
      hash.update(`\n${folder}/${file}\n`).update(readFileSync(join(root, folder, file)));
    }
  }
  return hash.digest('hex').slice(0, 12);
}

function isProduct(file: string): boolean {
  return file.endsWith('.ts') && !file.endsWith('.test.ts');
}
