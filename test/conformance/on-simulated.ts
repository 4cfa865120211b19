// Makes a test of each check, on a simulated engine of its own: files run beside each other and share nothing.

import { afterAll, beforeAll, describe, it } from 'vitest';
import { killAllGroups } from '../engines/process-group.ts';
import type { Theme } from './check.ts';
import { runCheck } from './run.ts';
import { simulatedSubject, type SimulatedSubject } from './simulated-subject.ts';

export function holdSimulated(themes: readonly Theme[], ranks: 1 | 2 = 1): void {
  let subject: SimulatedSubject;
  // Its process leads a group of its own: a worker that is ended early must take it along.
  process.once('exit', killAllGroups);

  beforeAll(async () => {
    subject = await simulatedSubject(ranks);
  });

  afterAll(() => subject.close());

  describe.each(themes)('$name', ({ checks }) => {
    it.each(checks)('$name', { timeout: 60_000 }, async (check) => {
      const outcome = await runCheck(check, subject);
      if (outcome.result === 'failed') throw new Error(outcome.why);
      // What the simulated engine cannot do is no part of what it is held to; there is nothing of that kind now.
      if (outcome.result === 'skipped') throw new Error(`without ${outcome.missing.join(', ')}`);
    });
  });
}
