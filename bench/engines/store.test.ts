import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { cellOf, turnOf } from './bench-cells.harness.ts';
import type { Arm } from './arms.ts';
import { LOADS } from './loads.ts';
import { cellFolder, clearCell, readCell, writeCell } from './store.ts';

const root = mkdtempSync(join(tmpdir(), 'spillway-store-'));
afterAll(() => rmSync(root, { recursive: true }));

const VLLM = { kind: 'vllm', settings: [], kvTokens: 32_768, longWarmUp: false } as const;
const [load] = LOADS;
const arm = (revision: string, name = 'spillway'): Arm =>
  ({ name, revision: () => revision, spillway: name.startsWith('spillway') }) as Arm;
const cell = { load: load!, arm: arm('one'), seed: 3 };

describe('a kept cell', () => {
  it('is found again by what its figures depend on, and by nothing else', () => {
    const folder = cellFolder(root, cell, VLLM);
    expect(cellFolder(root, { ...cell, arm: arm('one') }, VLLM)).toBe(folder);
    const others = [
      cellFolder(root, { ...cell, arm: arm('two') }, VLLM),
      cellFolder(root, { ...cell, arm: arm('one', 'spillway-2') }, VLLM),
      cellFolder(root, { ...cell, seed: 4 }, VLLM),
      cellFolder(root, { ...cell, load: LOADS[1]! }, VLLM),
      cellFolder(root, cell, { ...VLLM, kind: 'sim' }),
      cellFolder(root, cell, { ...VLLM, kvTokens: 16_384 }),
      cellFolder(root, cell, { ...VLLM, longWarmUp: true }),
      cellFolder(root, cell, { ...VLLM, settings: ['router.routing.holdMs=80'] }),
    ];
    expect(new Set([folder, ...others]).size).toBe(1 + others.length);
  });

  it('of another router does not depend on settings of ours', () => {
    const other = { ...cell, arm: arm('one', 'smg') };
    const settings = ['router.routing.holdMs=80'];
    expect(cellFolder(root, other, { ...VLLM, settings })).toBe(cellFolder(root, other, VLLM));
  });

  it('is read as it was written', () => {
    const folder = cellFolder(root, cell, VLLM);
    const result = cellOf('spillway', 3, [turnOf(0, 0, 123)]);
    clearCell(folder);
    writeCell(folder, result);
    expect(readCell(folder)).toEqual(result);
  });

  it('is none while it is measured, after it broke off, and where it was never begun', () => {
    const folder = cellFolder(root, { ...cell, seed: 5 }, VLLM);
    expect(readCell(folder)).toBeNull();
    clearCell(folder);
    writeFileSync(join(folder, 'cell.json.part'), '{"load":');
    expect(readCell(folder)).toBeNull();
  });

  it('is gone once it is measured again', () => {
    const folder = cellFolder(root, cell, VLLM);
    clearCell(folder);
    expect(readCell(folder)).toBeNull();
  });
});
