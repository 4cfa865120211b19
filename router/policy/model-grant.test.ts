import { describe, expect, test } from 'vitest';
import { demandedModel, granted } from './model-grant.ts';

const names = new Set(['llama', 'sql@v2']);
const demanded = (written: string) => demandedModel(written, (name) => names.has(name));

describe('a name', () => {
  test.each([
    ['llama', 'llama', null],
    ['llama@r1', 'llama', ['r1']],
    ['org/llama@a@b', 'org/llama@a', ['b']],
    ['sql@v2', 'sql@v2', null],
    ['sql@v2@r1', 'sql@v2', ['r1']],
    ['@llama', '@llama', null],
    ['llama@', 'llama@', null],
  ])('%s asks for %s in %j', (written, model, revisions) => {
    expect(demanded(written)).toEqual({ model, revisions });
  });
});

describe('a tenant', () => {
  test.each([
    [null, 'llama@r1', ['r1']],
    [['llama'], 'llama', null],
    [['llama'], 'llama@r1', ['r1']],
    [['llama@r1'], 'llama', ['r1']],
    [['llama@r1', 'llama@r2'], 'llama', ['r1', 'r2']],
    [['llama@r1', 'llama@r2'], 'llama@r2', ['r2']],
    [['llama@r1', 'llama'], 'llama@r3', ['r3']],
    [['sql@v2'], 'sql@v2', null],
  ])('that is granted %j and asks for %s is served %j', (models, written, revisions) => {
    expect(granted(models, demanded(written))?.revisions).toEqual(revisions);
  });

  test.each([
    [[], 'llama'],
    [['llama@r1'], 'llama@r2'],
    [['llama-2@r1'], 'llama'],
    [['llama@r1'], 'llam'],
    [['qwen'], 'llama@r1'],
  ])('that is granted %j may not use %s', (models, written) => {
    expect(granted(models, demanded(written))).toBeNull();
  });
});
