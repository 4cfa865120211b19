// Where cells are kept: outside the tree, one folder each, so that a run may be ended at any time and taken up again.
//
//   <results>/<engines>/<load>/<arm>/seed-<n>-<digest>/cell.json, and the arm's logs beside it
//
// The digest is of what the figures depend on: the arm's own revision, the engines and all that is sent. A cell of another
// revision stays where it is and is not taken for this one.

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Cell, CellResult } from './cell.ts';
import { engineDigest, type EngineKind } from './engines.ts';
import type { Load } from './loads.ts';
import { warmUpOf, workloadOf } from './workload.ts';

const FILE = 'cell.json';

/** What all cells of a run have in common. */
export interface Conditions {
  readonly kind: EngineKind;
  /** Of Spillway's routers. */
  readonly settings: readonly string[];
  readonly kvTokens: number;
  readonly longWarmUp: boolean;
}

export function resultsFolder(): string {
  const cache = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
  return process.env['SPILLWAY_BENCH_RESULTS'] ?? join(cache, 'spillway-bench', 'engines');
}

export function cellFolder(root: string, cell: Cell, under: Conditions): string {
  const { load, arm, seed } = cell;
  return join(root, under.kind, load.name, arm.name, `seed-${seed}-${digestOf(cell, under)}`);
}

/** Null where there is none, or none that was written to its end. */
export function readCell(folder: string): CellResult | null {
  try {
    return JSON.parse(readFileSync(join(folder, FILE), 'utf8')) as CellResult;
  } catch {
    return null;
  }
}

/** An empty folder for a cell that is about to be measured. */
export function clearCell(folder: string): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
}

export function writeCell(folder: string, result: CellResult): void {
  const open = join(folder, `${FILE}.part`);
  writeFileSync(open, `${JSON.stringify(result)}\n`);
  renameSync(open, join(folder, FILE));
}

function digestOf({ load, arm, seed }: Cell, under: Conditions): string {
  const ours = arm.spillway ? under.settings : [];
  const engines = engineDigest(under.kind, under.kvTokens);
  const parts = [arm.revision(), ...ours, engines, sentDigest(load, seed, under.longWarmUp)];
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 12);
}

/** By load and seed: all arms are sent the same, and a load is some megabytes to write. */
const sent = new Map<string, string>();

function sentDigest(load: Load, seed: number, longWarmUp: boolean): string {
  const name = `${load.name} ${seed}`;
  const known = sent.get(name) ?? workloadOf(load, seed).digest;
  sent.set(name, known);
  return `${known} ${warmUpOf(name, longWarmUp).digest}`;
}
