// Two simulated engines behind one port keep the rules that two real ones keep.

import { afterAll, beforeAll, describe, it } from 'vitest';
import { RANK_THEMES } from './list.ts';
import { runCheck } from './run.ts';
import { simulatedSubject, type SimulatedSubject } from './simulated-subject.ts';

let subject: SimulatedSubject;

beforeAll(async () => {
  subject = await simulatedSubject(2);
});

afterAll(() => subject.close());

describe.each(RANK_THEMES)('$name', ({ checks }) => {
  it.each(checks)('$name', async (check) => {
    const outcome = await runCheck(check, subject);
    if (outcome.result === 'failed') throw new Error(outcome.why);
  });
});
