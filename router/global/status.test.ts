import { expect, test } from 'vitest';
import { asia, type GlobalRig } from './core.harness.ts';
import { statusText } from './status.ts';

function textOf(rig: GlobalRig): string {
  return statusText({
    router: { id: 'g', software: 'spillway/1', upForS: 7 },
    ...{ ready: true, config: null, bodyBytes: 0, connections: {}, linkTotals: null },
    ...rig.core.status(rig.nowMs),
  });
}

test('the figures of a region that is not seen any more are not known, whatever it told last', () => {
  const rig = asia();
  expect(textOf(rig)).toMatch(/region jp .*: seen,.*\n +pool +2 ready, queue 0 ms, 0 queued there/);
  rig.pass(60_000);
  rig.report('sg');
  const text = textOf(rig);
  expect(text).toMatch(
    /region jp .*: not seen,.*\n +pool +\? ready, queue \? ms, \? queued there.*report 60000 ms/,
  );
  expect(text).toMatch(/region sg .*: seen,.*\n +pool +2 ready, queue 0 ms, 0 queued there/);
});
