// The list of checks of `test/conformance` on the real engine: what `npm test` holds the simulated one to.

import type { ConformanceSubject } from '../conformance/subject.ts';
import { THEMES } from '../conformance/list.ts';
import { runCheck } from '../conformance/run.ts';
import type { Verdict } from './verdict.ts';
import { vllmSubject, type SubjectPlace } from './vllm-subject.ts';

/** Starts an engine, runs every check on it, and ends it. */
export async function proveConformance(place: SubjectPlace, verdict: Verdict): Promise<void> {
  const subject = await vllmSubject(place);
  try {
    await runThemes(subject, verdict);
  } finally {
    await subject.controls.stop();
  }
}

async function runThemes(subject: ConformanceSubject, verdict: Verdict): Promise<void> {
  for (const theme of THEMES) {
    verdict.heading(`Conformance of ${subject.name}: ${theme.name}`);
    for (const check of theme.checks) {
      const outcome = await runCheck(check, subject);
      if (outcome.result === 'skipped') verdict.skip(check.name, outcome.missing.join(', '));
      else {
        const seen = outcome.result === 'failed' ? outcome.why : `${Math.round(outcome.ms)} ms`;
        verdict.check(check.name, outcome.result === 'ok', seen);
      }
    }
  }
}
