import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { revisionOf } from './revision.ts';

const root = mkdtempSync(join(tmpdir(), 'spillway-revision-'));
afterAll(() => rmSync(root, { recursive: true }));

function write(path: string, text: string): void {
  mkdirSync(join(root, path, '..'), { recursive: true });
  writeFileSync(join(root, path), text);
}

it('changes with any code of the product and with its packages, and with no test or document', () => {
  for (const folder of ['agent', 'bin', 'router/policy', 'shared']) write(`${folder}/a.ts`, '1');
  write('package-lock.json', '{}');
  const seen = [revisionOf(root)];
  write('router/policy/a.test.ts', 'changed');
  write('docs/a.md', 'changed');
  expect(revisionOf(root)).toBe(seen[0]);
  const changes = [
    () => write('router/policy/a.ts', '2'),
    () => write('bin/b.ts', ''),
    () => write('package-lock.json', '{"lockfileVersion":3}'),
  ];
  for (const change of changes) {
    change();
    seen.push(revisionOf(root));
  }
  expect(new Set(seen).size).toBe(4);
});
