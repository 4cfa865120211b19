import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { PrefillSums } from '../../shared/model/cost-curve.ts';
import type { RouterId } from '../../shared/model/ids.ts';
import { OthersWork, type OthersSend } from './others-work.ts';

const routers = ['r1', 'r2', 'r3'] as unknown as readonly RouterId[];
const router = fc.constantFrom(...routers);
const seq = fc.option(fc.nat(6));
const step = fc.oneof(
  fc.record({
    kind: fc.constant('open' as const),
    router,
    seq,
    uncached: fc.nat(1_000),
    requests: fc.integer({ min: 1, max: 3 }),
  }),
  fc.record({ kind: fc.constant('anew' as const), which: fc.nat(), seq }),
  fc.record({ kind: fc.constant('end' as const), which: fc.nat() }),
  fc.record({ kind: fc.constant('ack' as const), router, seq: fc.integer({ min: -1, max: 6 }) }),
  fc.record({ kind: fc.constant('forget' as const) }),
);

interface Told {
  readonly send: OthersSend;
  acked: boolean;
}

const sumOf = (told: readonly Told[]): PrefillSums => {
  const sums = { uncached: 0, prompt: 0, context: 0 };
  for (const { send } of told) {
    sums.uncached += send.sums.uncached;
    sums.prompt += send.sums.prompt;
    sums.context += send.sums.context;
  }
  return sums;
};

test('what is open, and what of it no report includes, are the sums over the sends', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const work = new OthersWork();
      const acks = new Map<RouterId, number>();
      const open: Told[] = [];
      const includes = ({ router: of, seq: at }: OthersSend): boolean =>
        at !== null && at <= (acks.get(of) ?? -1);
      for (const next of steps) {
        const told = 'which' in next ? open[next.which % Math.max(1, open.length)] : undefined;
        if (next.kind === 'open') {
          const { uncached, requests } = next;
          const sums = { uncached, prompt: 2 * uncached, context: 3 * uncached };
          const send = work.opened(next.router, {
            sums,
            requests,
            growthTokens: 7 * requests,
            seq: next.seq,
          });
          open.push({ send, acked: includes(send) });
        } else if (next.kind === 'anew' && told !== undefined) {
          work.toldAnew(told.send, next.seq);
          told.acked = includes(told.send);
        } else if (next.kind === 'end' && told !== undefined) {
          work.ended(told.send);
          open.splice(open.indexOf(told), 1);
        } else if (next.kind === 'ack') {
          acks.set(next.router, next.seq);
          work.acknowledged(next.router, next.seq);
          for (const each of open) each.acked ||= includes(each.send);
        } else if (next.kind === 'forget') {
          acks.clear();
          work.forgetAcks();
        }
        const unacked = open.filter(({ acked }) => !acked);
        expect(work.count).toBe(open.length);
        expect(work.open).toEqual(sumOf(open));
        expect(work.unacked).toEqual(sumOf(unacked));
        const requests = unacked.reduce((sum, { send }) => sum + send.requests, 0);
        expect([work.requests, work.growthTokens]).toEqual([requests, 7 * requests]);
      }
    }),
  );
});

test('sums of nothing are nothing, whatever was rounded away before', () => {
  const work = new OthersWork();
  const sums = [0.1, 0.2, 0.3].map((uncached) => ({ uncached, prompt: uncached, context: 1e17 }));
  const sends = sums.map((each, seq) =>
    work.opened(routers[0] as RouterId, { sums: each, requests: 1, growthTokens: 0, seq }),
  );
  for (const send of sends) work.ended(send);
  const nothing = { uncached: 0, prompt: 0, context: 0 };
  expect([work.open, work.unacked, work.requests]).toEqual([nothing, nothing, 0]);
});

test('remembers of so many routers what reports include, the last ones', () => {
  const work = new OthersWork();
  for (let k = 0; k < 1_000; k += 1) work.acknowledged(`router-${k}` as RouterId, 5);
  const sums = { uncached: 1, prompt: 1, context: 1 };
  work.opened('router-999' as RouterId, { sums, requests: 1, growthTokens: 0, seq: 5 });
  expect(work.requests).toBe(0);
  work.opened('router-0' as RouterId, { sums, requests: 1, growthTokens: 0, seq: 5 });
  expect(work.requests).toBe(1);
});
