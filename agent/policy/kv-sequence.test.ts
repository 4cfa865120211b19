import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { KvBatch } from './kv-event.ts';
import { KvSequence, type KvStep } from './kv-sequence.ts';

const batch = (seq: number): KvBatch => ({ seq, events: [] });
const batches = (from: number, to: number): KvBatch[] =>
  Array.from({ length: Math.max(0, to - from) }, (_, at) => batch(from + at));

/** `3` a live batch, `3*` one of a replay, `3^` one from before the agent listened. */
function told(steps: readonly KvStep[]): string {
  const words = steps.map((step) => {
    if (step.kind === 'replay') return `replay(${step.fromSeq})`;
    if (step.kind !== 'batch') return step.kind;
    return `${step.batch.seq}${{ live: '', gap: '*', start: '^' }[step.since]}`;
  });
  return words.join(' ');
}

function begun(upTo: number): KvSequence {
  const sequence = new KvSequence();
  for (const each of batches(0, upTo)) sequence.live(each);
  return sequence;
}

test('batches in order are taken as they come', () => {
  const sequence = new KvSequence();
  expect(batches(0, 4).map((each) => told(sequence.live(each)))).toEqual(['0', '1', '2', '3']);
  expect(sequence.lastSeq).toBe(3);
});

describe('a gap', () => {
  test('is asked for once, what comes meanwhile waits, and all is taken in order', () => {
    const sequence = begun(3);
    expect(told(sequence.live(batch(5)))).toBe('replay(3)');
    expect(told(sequence.live(batch(6)))).toBe('');
    expect(told(sequence.replayed(3, batches(3, 5), false))).toBe('3* 4*');
    expect(told(sequence.replayed(3, batches(5, 6), true))).toBe('5* 6');
    expect(told(sequence.live(batch(7)))).toBe('7');
  });

  test('that a replay fills only from later on is lost', () => {
    const sequence = begun(3);
    sequence.live(batch(9));
    expect(told(sequence.replayed(3, batches(6, 9), true))).toBe('lost 6* 7* 8* 9');
  });

  test('that no replay fills is lost, and counting goes on behind it', () => {
    const sequence = begun(3);
    sequence.live(batch(9));
    expect(told(sequence.replayed(3, [], true))).toBe('lost 9');
    expect(told(sequence.live(batch(10)))).toBe('10');
  });

  test('live batches that the replay brought already are no restart, only late', () => {
    const sequence = begun(3);
    sequence.live(batch(5));
    sequence.replayed(3, batches(3, 9), true);
    expect(batches(6, 11).map((each) => told(sequence.live(each)))).toEqual([
      '',
      '',
      '',
      '9',
      '10',
    ]);
  });

  test('does not wait for ever: with 4,096 batches waiting it is lost', () => {
    const sequence = begun(3);
    const steps = batches(5, 5 + 4_097).flatMap((each) => sequence.live(each));
    expect(told(steps.slice(0, 3))).toBe('replay(3) lost 5');
    expect(steps).toHaveLength(4_097 + 2);
    expect(told(sequence.replayed(3, batches(3, 5), true))).toBe('');
  });
});

describe('a number that goes back', () => {
  test('is another process that counts from 0', () => {
    const sequence = begun(5);
    expect(told(sequence.live(batch(0)))).toBe('restarted 0');
    expect(told(sequence.live(batch(1)))).toBe('1');
  });

  test('of which the beginning was missed is asked for from 0', () => {
    const sequence = begun(5);
    expect(told(sequence.live(batch(2)))).toBe('restarted replay(0)');
    expect(told(sequence.replayed(0, batches(0, 3), true))).toBe('0^ 1^ 2^');
  });

  test('during a replay: the old answer is not taken for the new process', () => {
    const sequence = begun(5);
    sequence.live(batch(8));
    expect(told(sequence.live(batch(0)))).toBe('restarted 0');
    expect(told(sequence.replayed(5, batches(5, 8), true))).toBe('');
    expect(told(sequence.live(batch(1)))).toBe('1');
  });
});

describe('an agent that comes later', () => {
  test('asks for the beginning, which is told apart from what it hears itself', () => {
    const sequence = new KvSequence();
    expect(told(sequence.live(batch(7)))).toBe('replay(0)');
    expect(told(sequence.replayed(0, batches(0, 7), true))).toBe('0^ 1^ 2^ 3^ 4^ 5^ 6^ 7');
  });

  test('knows that something is missing where the beginning is not kept any more', () => {
    const sequence = new KvSequence();
    sequence.live(batch(7));
    expect(told(sequence.replayed(0, batches(4, 8), true))).toBe('lost 4^ 5^ 6^ 7^');
  });
});

test('whatever is dropped, with a replay that keeps everything nothing is lost and all is taken once', () => {
  fc.assert(
    fc.property(fc.array(fc.boolean(), { minLength: 1, maxLength: 60 }), (heard) => {
      const sequence = new KvSequence();
      const taken: number[] = [];
      const apply = (steps: readonly KvStep[], published: number): void => {
        for (const step of steps) {
          expect(step.kind).not.toBe('lost');
          expect(step.kind).not.toBe('restarted');
          if (step.kind === 'batch') taken.push(step.batch.seq);
          if (step.kind === 'replay') {
            const { fromSeq } = step;
            apply(sequence.replayed(fromSeq, batches(fromSeq, published), true), published);
          }
        }
      };
      heard.forEach((hears, seq) => {
        if (hears) apply(sequence.live(batch(seq)), seq + 1);
      });
      const last = heard.lastIndexOf(true);
      expect(taken).toEqual(Array.from({ length: last + 1 }, (_, at) => at));
    }),
  );
});
