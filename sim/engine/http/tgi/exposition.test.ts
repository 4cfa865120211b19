import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

import { ENGINE_PROFILES, type EngineProfile } from '../../profiles.ts';
import type { StepFacts } from '../../step-facts.ts';
import { renderTgiExposition } from './exposition.ts';
import { TgiStats } from './stats.ts';

const RECORDED = readFileSync(
  new URL('../../../../test/fixtures/metrics/tgi-v3-datadog.prom', import.meta.url),
  'utf8',
);
const PROFILE = ENGINE_PROFILES['demo'] as EngineProfile;

function step(facts: Partial<StepFacts>): StepFacts {
  return {
    startMs: 0,
    endMs: 100,
    prefillTokens: 0,
    prefillRequests: 0,
    admittedIds: [],
    cachedTokens: 0,
    preempted: 0,
    decodes: 0,
    decodeContextTokens: 0,
    ...facts,
  };
}

/** A server with the limits of the recorded one, on which everything that was recorded has happened. */
function busy(): TgiStats {
  const stats = new TgiStats(511, 512);
  stats.received = 3;
  stats.countFailure('validation');
  stats.countValid(7, 20);
  stats.countStep(step({ prefillTokens: 7, admittedIds: ['a', 'b'] }), PROFILE);
  stats.countStep(step({ prefillTokens: 7, admittedIds: ['c'], decodes: 2 }), PROFILE);
  stats.countSuccess({
    ...{ totalSeconds: 3, validationSeconds: 0.0002, queueSeconds: 1, inferenceSeconds: 2 },
    generatedTokens: 20,
  });
  stats.queueSize = 0;
  stats.batchSize = 2;
  stats.batchMaxTokens = 64;
  return stats;
}

/** Lines without their values; rows of one family that differ by method in the order of the method's name. */
function frame(body: string): string[] {
  const order = (block: string): string => {
    const lines = block.split('\n').map((line) => line.replace(/ [0-9.]+$/, ''));
    const heads = lines.filter((line) => line.startsWith('#'));
    const rows = lines.filter((line) => !line.startsWith('#'));
    const methodOf = (row: string): string => /method="(\w+)"/.exec(row)?.[1] ?? '';
    return [...heads, ...rows.toSorted((a, b) => methodOf(a).localeCompare(methodOf(b)))].join(
      '\n',
    );
  };
  return body.split('\n\n').map(order);
}

describe('the exposition of TGI', () => {
  it('has the families, words, labels, buckets and order of a real body', () => {
    expect(frame(renderTgiExposition(busy()))).toEqual(frame(RECORDED));
  });

  it('says nothing of what never happened', () => {
    expect(renderTgiExposition(new TgiStats(511, 512))).toBe('');
    const stats = new TgiStats(511, 512);
    stats.countStep(step({ decodes: 1 }), PROFILE);
    expect(renderTgiExposition(stats)).not.toContain('prefill"');
  });

  it('writes small and large numbers without an exponent', () => {
    const stats = new TgiStats(511, 512);
    stats.countSuccess({
      ...{ totalSeconds: 1.5e-7, validationSeconds: 0, queueSeconds: 0, inferenceSeconds: 0 },
      generatedTokens: 3e9,
    });
    const body = renderTgiExposition(stats);
    expect(body).toContain('tgi_request_duration_sum 0.00000015\n');
    expect(body).toContain('tgi_request_generated_tokens_sum 3000000000\n');
  });
});

describe('the figures of TGI', () => {
  it('gives the time of a mixed step to the prefill, less what its decodes cost', () => {
    const stats = new TgiStats(511, 512);
    const joined = { decodes: 400, decodeContextTokens: 1_000_000 };
    stats.countStep(step({ prefillTokens: 500, ...joined }), PROFILE);
    const decodeMs =
      400 * PROFILE.decodeMsPerSequence + 1_000_000 * PROFILE.decodeContextMsPerToken;
    expect(stats.forward.get('prefill')?.sum).toBeCloseTo((100 - decodeMs) / 1_000);
    expect(stats.forward.get('decode')?.sum).toBeCloseTo(decodeMs / 1_000);
    expect(stats.concats.get('chunking')).toBe(1);
  });

  it('counts the input before the request waits, its durations when it is answered', () => {
    const stats = new TgiStats(511, 512);
    stats.countValid(100, 20);
    expect([stats.inputLength.sum, stats.queueSeconds.count]).toEqual([100, 0]);
  });
});
