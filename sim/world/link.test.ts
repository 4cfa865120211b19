import fc from 'fast-check';
import { expect, test } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import type { LinkId, PoolId } from '../../shared/model/ids.ts';
import type { Queued } from '../../shared/protocol/messages.ts';
import { VirtualLink } from './link.ts';
import { Timeline } from './timeline.ts';

function message(requests: number): Queued {
  return { kind: 'queued', pool: 'p' as PoolId, prefillMs: 0, requests, topPriority: null };
}

type Step = 'send' | 'wait' | 'hold' | 'release';

function run(seed: number, steps: readonly Step[], cut: boolean): (number | 'down')[] {
  const timeline = new Timeline();
  const seen: (number | 'down')[] = [];
  const link = new VirtualLink({
    id: 'l' as LinkId,
    timeline,
    timing: { delayMs: 1, jitterMs: 20 },
    random: seededRandom(seed),
    wire: null,
    ends: {
      toAgent: (m) => seen.push((m as Queued).requests),
      toRouter: () => {},
      agentDown: () => seen.push('down'),
      routerDown: () => {},
    },
  });
  let sent = 0;
  for (const step of steps) {
    if (step === 'send') link.fromRouter(message(sent++));
    else if (step === 'hold') link.hold('down');
    else if (step === 'release') link.release();
    else timeline.step(timeline.nowMs + 5);
  }
  if (cut) link.cut();
  link.fromRouter(message(-1));
  if (!cut) link.release();
  while (timeline.step(1_000));
  return seen;
}

const steps = fc.array(fc.constantFrom<Step>('send', 'send', 'wait', 'hold', 'release'));

test('a direction delivers everything in order, held or not', () => {
  fc.assert(
    fc.property(fc.nat(), steps, (seed, plan) => {
      const sends = plan.filter((step) => step === 'send').length;
      expect(run(seed, plan, false)).toEqual([...Array(sends).keys(), -1]);
    }),
  );
});

test('a cut loses a tail, and the end hears of it once, after what still came', () => {
  fc.assert(
    fc.property(fc.nat(), steps, (seed, plan) => {
      const seen = run(seed, plan, true);
      expect(seen.at(-1)).toBe('down');
      expect(seen.slice(0, -1)).toEqual([...Array(seen.length - 1).keys()]);
    }),
  );
});
