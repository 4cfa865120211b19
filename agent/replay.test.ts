import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { Replay, type Foretold, type RecordedRequest } from './replay.harness.ts';

const FIXTURES = new URL('../test/fixtures/vllm-0.32.0/', import.meta.url);

interface Row {
  readonly sentAtMs?: number;
  readonly ttftMs: number | null;
  readonly e2eMs?: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

function recorded(name: string, member: string): RecordedRequest[] {
  const text = readFileSync(new URL(name, FIXTURES), 'utf8');
  const rows = (JSON.parse(text) as Record<string, Row[]>)[member] ?? [];
  const startMs = rows[0]?.sentAtMs ?? 0;
  return rows.map((row) => ({
    sentMs: (row.sentAtMs ?? startMs) - startMs,
    ttftMs: row.ttftMs,
    promptTokens: row.promptTokens,
    cachedTokens: row.cachedTokens,
    e2eMs: row.e2eMs ?? (row.ttftMs ?? 0) + 0.1,
  }));
}

/** Lone prefills, as warm-up measures them; the longest without a prefix were not recorded. */
const LONE = recorded('prefill-cached.json', 'alone');
const CALIBRATION = [
  [316, 0],
  [1_781, 0],
  [302, 9_312],
  [1_782, 9_376],
].map(([uncached, cached]) => {
  const at = LONE.find((row) => row.cachedTokens === cached && uncachedOf(row) === uncached);
  if (at === undefined) throw new Error(`no recording of ${uncached} after ${cached}`);
  return at;
});

interface Recording {
  readonly calibration: readonly RecordedRequest[];
  readonly requests: readonly RecordedRequest[];
}

const RECORDINGS: Readonly<Record<string, Recording>> = {
  'prefill-cached.json': {
    calibration: CALIBRATION,
    requests: LONE.filter((row) => !CALIBRATION.includes(row)),
  },
  'load-24-requests.json': {
    calibration: CALIBRATION,
    requests: recorded('load-24-requests.json', 'requests'),
  },
  // Half of it not streamed, decodes beside prefills; the same engine's own calibration.
  'load-mixed.json': {
    calibration: recorded('load-mixed.json', 'calibration'),
    requests: recorded('load-mixed.json', 'requests'),
  },
};

function uncachedOf(row: RecordedRequest): number {
  return row.promptTokens - row.cachedTokens;
}

function errorsOf(told: readonly Foretold[]): number[] {
  return told.map(({ predictedMs, measuredMs }) => Math.abs(predictedMs / measuredMs - 1));
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[(values.length - 1) >> 1] ?? Number.NaN;
}

/** From a calibration at four lengths, each request foretold before it teaches anything. */
function replayed(
  { calibration, requests }: Recording,
  stepTokens: number | null,
): { told: Foretold[]; replay: Replay } {
  const replay = new Replay({ stepTokens });
  expect(calibration).toHaveLength(4);
  replay.calibrate(calibration);
  return { told: replay.run(requests), replay };
}

describe.each(Object.entries(RECORDINGS))('%s, one request ahead', (_name, recording) => {
  test.each([
    ['its step of 1,024 tokens known', 1_024],
    ['its step unknown', null],
    ['its step told wrong', 8_192],
  ])('%s: within 10 %% (median)', (_, stepTokens) => {
    const { told, replay } = replayed(recording, stepTokens);
    expect(told).toHaveLength(recording.requests.filter(({ ttftMs }) => ttftMs !== null).length);
    expect(median(errorsOf(told))).toBeLessThan(0.1);
    // The agent says the same of itself, where observations were enough.
    const said = replay.target.cost.errors.figures();
    if (said !== null) expect(said.p50).toBeLessThan(0.1);
  });
});
