// The simulated engine keeps every rule that the real one keeps: each check is a test. `npm run test:engines` runs
// the same list on a real vLLM.

import { afterAll, beforeAll, describe, it } from 'vitest';
import { THEMES } from './list.ts';
import { runCheck } from './run.ts';
import { simulatedSubject, type SimulatedSubject } from './simulated-subject.ts';

let subject: SimulatedSubject;

beforeAll(async () => {
  subject = await simulatedSubject();
});

afterAll(() => subject.close());

describe.each(THEMES)('$name', ({ checks }) => {
  it.each(checks)('$name', async (check) => {
    const outcome = await runCheck(check, subject);
    if (outcome.result === 'failed') throw new Error(outcome.why);
  });
});
