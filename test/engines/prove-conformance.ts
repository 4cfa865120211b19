// The list of checks of `test/conformance` on real engines: what `npm test` holds the simulated one to.

import type { Theme } from '../conformance/check.ts';
import { RANK_THEMES, THEMES } from '../conformance/list.ts';
import { runCheck } from '../conformance/run.ts';
import type { ConformanceSubject } from '../conformance/subject.ts';
import type { Verdict } from './verdict.ts';
import { vllmRanksSubject, vllmSubject, type SubjectPlace } from './vllm-subject.ts';

/** Runs every check on an engine of one rank, then those of ranks on one of two; both are ended. */
export async function proveConformance(place: SubjectPlace, verdict: Verdict): Promise<void> {
  await runThemes(await vllmSubject(place), THEMES, verdict);
  await runThemes(await vllmRanksSubject(place), RANK_THEMES, verdict);
}

async function runThemes(
  subject: ConformanceSubject,
  themes: readonly Theme[],
  verdict: Verdict,
): Promise<void> {
  try {
    for (const theme of themes) {
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
  } finally {
    await subject.controls.stop();
  }
}
