// `npm test`: runs the tests and ends with one line that says how many passed, failed and were skipped.
// A test that lacks a program skips itself with a note that says what to install; the notes are repeated before
// the last line. Where CI is set a skipped test is a failure: there everything must be installed.

import { startVitest, type Reporter, type TestModule } from 'vitest/node';

interface Tally {
  passed: number;
  failed: number;
  skipped: { name: string; note: string }[];
}

/** Counts every test, and one failure for a file or process that broke outside its tests. */
function tallyOf(modules: readonly TestModule[], unhandled: number): Tally {
  const tally: Tally = { passed: 0, failed: unhandled, skipped: [] };
  for (const file of modules) {
    if (file.errors().length > 0) tally.failed += 1;
    for (const test of file.children.allTests()) {
      const result = test.result();
      if (result.state === 'passed') tally.passed += 1;
      else if (result.state === 'failed') tally.failed += 1;
      else {
        const note =
          result.state === 'skipped' ? (result.note ?? 'no reason given') : 'did not run';
        tally.skipped.push({ name: `${file.relativeModuleId} > ${test.fullName}`, note });
      }
    }
  }
  return tally;
}

const outcome: { tally: Tally | null } = { tally: null };
const reporter: Reporter = {
  onTestRunEnd(modules, unhandled) {
    outcome.tally = tallyOf(modules, unhandled.length);
  },
};

const vitest = await startVitest('test', process.argv.slice(2), {
  watch: false,
  reporters: ['default', reporter],
});
await vitest.close();

const tally = outcome.tally ?? { passed: 0, failed: 1, skipped: [] };
for (const { name, note } of tally.skipped) console.log(`skipped: ${name}: ${note}`);
const skips = tally.skipped.length === 0 ? '' : `, ${tally.skipped.length} skipped`;
const strict = process.env['CI'] === 'true' && tally.skipped.length > 0;
if (strict) console.log('CI is set: a skipped test counts as a failure of the run');
console.log(`${tally.passed} passed, ${tally.failed} failed${skips}`);
process.exit(tally.failed > 0 || tally.passed === 0 || strict ? 1 : 0);
