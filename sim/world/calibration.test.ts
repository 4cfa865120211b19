// What calibration makes of an engine whose first steps compile kernels.

import { describe, expect, test } from 'vitest';
import { ENGINE_PROFILES, trueCostCurve, type EngineProfile } from '../engine/profiles.ts';
import { prefillMs } from '../../shared/model/cost-curve.ts';
import type { CostCurve } from '../../shared/model/cost-curve.ts';
import { World } from './world.ts';

const COLD = { coldSteps: 4, coldStepMs: 4_000, coldShapeMs: 100 } as const;
const POINTS = [
  [300, 0],
  [4_000, 0],
  [12_000, 0],
  [500, 6_000],
] as const;

function profileOf(name: string, change: Partial<EngineProfile> = {}): EngineProfile {
  return { ...ENGINE_PROFILES[name]!, loadingMs: 500, jitterRatio: 0.03, ...change };
}

function calibrated(profile: EngineProfile, seed: number): CostCurve {
  const world = new World({ seed, profile, replicas: 1 });
  world.runUntilReady();
  const [target] = world.agents[0]!.core!.status(world.nowMs).engines[0]!.targets;
  return target!.report.prefillCost!;
}

/** Measured alone, the constant of a request's front end included. */
function loneMs(profile: EngineProfile, uncached: number, cached: number): number {
  return profile.frontMs + prefillMs(trueCostCurve(profile), uncached, cached);
}

describe.each(['cpu-tiny-llama', 'l4-llama-8b', 'h100-llama-8b', 'demo'])('%s', (name) => {
  test.each([1, 2])(
    'calibration finds its curve though its first steps are cold (seed %i)',
    (seed) => {
      const profile = profileOf(name, COLD);
      const curve = calibrated(profile, seed);
      for (const [uncached, cached] of POINTS) {
        const error = prefillMs(curve, uncached, cached) / loneMs(profile, uncached, cached) - 1;
        expect(Math.abs(error)).toBeLessThan(0.15);
      }
    },
  );
});
