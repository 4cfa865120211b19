// What of the product a result depends on: a digest of all code that runs in a router or an agent. A result is taken up again
// only where this digest is the same. What is measured is a copy of the code as it was when the run began: the tree
// may be worked on meanwhile.

import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..', '..');
const FOLDERS = ['agent', 'bin', 'router', 'shared'] as const;
/** What the commands need besides. */
const ALSO = ['sim', 'package.json', 'package-lock.json'] as const;

let known: string | null = null;

/** Of the tree, as it was when it was first asked for. */
export function productRevision(): string {
  known ??= revisionOf(ROOT);
  return known;
}

/** Copies the code into a folder and gives the path of its `spillway`; throws where the tree is no longer what it was. */
export function copyProduct(folder: string): string {
  mkdirSync(folder, { recursive: true });
  for (const name of [...FOLDERS, ...ALSO]) {
    cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  }
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  if (revisionOf(folder) !== productRevision()) {
    throw new Error('the code changed while the run began; begin it again');
  }
  return join(folder, 'bin', 'spillway');
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
