// Makes recordings of a real vLLM again: `node test/engines/record.ts FOLDER [name…]`; without names, all of them.
//
// The machine should do nothing else meanwhile; `load-mixed.json` says how much others used.

import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ConformanceSubject } from '../conformance/subject.ts';
import { untilServing } from '../conformance/run.ts';
import { killGroupsOnExit } from './process-group.ts';
import {
  recordLeaving,
  recordPreemption,
  recordRankEvents,
  recordReset,
  recordSleep,
} from './record-events.ts';
import { linesOf } from './record-lines.ts';
import { recordMixedLoad } from './record-mixed.ts';
import { installFolder, isInstalled } from './requirements.ts';
import { Engine, placeEngine } from './vllm.ts';
import { vllmRanksSubject, vllmSubject } from './vllm-subject.ts';

const START_LIMIT_MS = 240_000;

type Recording = (subject: ConformanceSubject) => Promise<object | string>;

/** By file, on an engine of one rank. */
const OF_ONE: Readonly<Record<string, Recording>> = {
  'sleep-wake.json': recordSleep,
  'reset-running.json': recordReset,
  'preemption.json': recordPreemption,
  'leaving.json': recordLeaving,
};
const OF_RANKS: Readonly<Record<string, Recording>> = { 'kv-events-dp2.jsonl': recordRankEvents };
const MIXED = 'load-mixed.json';
const NAMES = [MIXED, ...Object.keys(OF_ONE), ...Object.keys(OF_RANKS)];

async function main([folder, ...asked]: readonly string[]): Promise<number> {
  const unknown = asked.filter((name) => !NAMES.includes(name));
  if (folder === undefined || unknown.length > 0) {
    console.error(`usage: node test/engines/record.ts FOLDER [${NAMES.join(' | ')}]…`);
    return 2;
  }
  const install = installFolder();
  if (!isInstalled(install)) {
    console.error(`no engine in ${install}: run npm run test:engines once`);
    return 2;
  }
  killGroupsOnExit();
  mkdirSync(folder, { recursive: true });
  const names = asked.length === 0 ? NAMES : asked;
  const place = { install, folder: mkdtempSync(join(tmpdir(), 'spillway-record-')) };
  console.log(`logs: ${place.folder}`);
  if (names.includes(MIXED)) await recordMixed(place, join(folder, MIXED));
  await recordOn(() => vllmSubject(place), pick(OF_ONE, names), folder);
  await recordOn(() => vllmRanksSubject(place), pick(OF_RANKS, names), folder);
  return 0;
}

function pick(
  all: Readonly<Record<string, Recording>>,
  names: readonly string[],
): readonly (readonly [string, Recording])[] {
  return Object.entries(all).filter(([name]) => names.includes(name));
}

/** On an engine as those behind Spillway, whose recordings the model's profile was fitted to. */
async function recordMixed(
  { install, folder }: { readonly install: string; readonly folder: string },
  path: string,
): Promise<void> {
  const engine = new Engine(await placeEngine('mixed', 0, folder), install);
  engine.start();
  try {
    await engine.untilServing(START_LIMIT_MS);
    save(path, await recordMixedLoad(engine));
  } finally {
    await engine.stop();
  }
}

async function recordOn(
  make: () => Promise<ConformanceSubject>,
  recordings: readonly (readonly [string, Recording])[],
  folder: string,
): Promise<void> {
  if (recordings.length === 0) return;
  const subject = await make();
  try {
    await untilServing(subject);
    for (const [name, record] of recordings) save(join(folder, name), await record(subject));
  } finally {
    await subject.controls.stop();
  }
}

function save(path: string, value: object | string): void {
  writeFileSync(path, typeof value === 'string' ? value : linesOf(value));
  console.log(path);
}

process.exitCode = await main(process.argv.slice(2));
