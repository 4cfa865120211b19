// Walks every import of the tree and fails on one that STYLE's table forbids.

import { globSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';
import { LAYERS, type Layer } from './layers.ts';

const ROOT = join(import.meta.dirname, '../..');

/** Every file of the tree; packages and hidden folders are nobody's. */
const files = globSync('**/*.ts', {
  cwd: ROOT,
  exclude: (path) => /(^|\/)(node_modules$|\.)/.test(path),
});

const IMPORT =
  /^\s*(?:import|export)\s[^'"`;]*?\bfrom\s+'([^']+)'|^\s*import\s+'([^']+)'|\bimport\(\s*'([^']+)'/gm;

function importsOf(source: string): string[] {
  return Array.from(source.matchAll(IMPORT), (match) => match[1] ?? match[2] ?? match[3] ?? '');
}

function layerOf(file: string): Layer | null {
  return LAYERS.find((layer) => layer.files.test(file)) ?? null;
}

/** What is wrong with one import; null when nothing is. */
function breach(file: string, target: string, layer: Layer): string | null {
  if (!target.startsWith('.')) {
    const name = target.startsWith('node:')
      ? target
      : target
          .split('/')
          .slice(0, target.startsWith('@') ? 2 : 1)
          .join('/');
    if (layer.packages === 'all' || layer.packages.includes(name)) return null;
    return `${file}: ${layer.name} may not import ${name}`;
  }
  const path = normalize(join(dirname(file), target));
  if (!path.endsWith('.ts')) return path.endsWith('.json') ? null : `${file}: ${target} lacks .ts`;
  if (path.startsWith('bin/') && !file.startsWith('bin/') && layer.name !== 'tests') {
    return `${file}: nothing imports bin/`;
  }
  if (path.endsWith('.test.ts')) return `${file}: nothing imports a test (${path})`;
  const allowed = layer.files.test(path) || layer.imports.some((pattern) => pattern.test(path));
  return allowed ? null : `${file}: ${layer.name} may not import ${path}`;
}

describe('imports', () => {
  it('finds static, type-only, multi-line, side-effect and dynamic imports', () => {
    const source = [
      "import { a } from './a.ts';",
      "import type { B } from './b.ts';",
      'import {',
      '  c,',
      "} from './c.ts';",
      "import './d.ts';",
      "const e = await import('./e.ts');",
      "export type { F } from './f.ts';",
    ].join('\n');
    expect(importsOf(source)).toEqual(['a', 'b', 'c', 'd', 'e', 'f'].map((name) => `./${name}.ts`));
  });

  it('gives every file a layer', () => {
    expect(files.length).toBeGreaterThan(0);
    expect(files.filter((file) => layerOf(file) === null)).toEqual([]);
  });

  it('follows the table of layers', () => {
    const breaches = files.flatMap((file) => {
      const layer = layerOf(file);
      if (layer === null) return [];
      const source = readFileSync(join(ROOT, file), 'utf8');
      return importsOf(source).flatMap((target) => breach(file, target, layer) ?? []);
    });
    expect(breaches).toEqual([]);
  });

  it('catches a breach of each kind', () => {
    const policy = layerOf('router/policy/cost.ts');
    expect(policy?.name).toBe('router policy');
    if (policy === null) return;
    expect(breach('router/policy/cost.ts', 'node:fs', policy)).toMatch(/may not import node:fs/);
    expect(breach('router/policy/cost.ts', '../regional/core.ts', policy)).toMatch(
      /may not import/,
    );
    expect(breach('router/policy/cost.ts', '../../shared/model/ids.ts', policy)).toBeNull();
    const shell = layerOf('router/regional/start.ts');
    if (shell === null) return;
    expect(breach('router/regional/start.ts', '../../agent/core.ts', shell)).toMatch(/may not/);
    expect(breach('router/regional/start.ts', '../../bin/main.ts', shell)).toMatch(/bin/);
  });
});
