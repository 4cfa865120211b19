import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BinaryHeap } from './binary-heap.ts';

test('gives items back in order, whatever was pushed, popped and pruned between', () => {
  const step = fc.oneof(fc.nat({ max: 50 }), fc.constantFrom('pop' as const, 'prune' as const));
  fc.assert(
    fc.property(fc.array(step), (steps) => {
      const heap = new BinaryHeap<number>((a, b) => a < b);
      let model: number[] = [];
      for (const next of steps) {
        if (next === 'pop') {
          expect(heap.pop()).toBe(model.shift());
        } else if (next === 'prune') {
          heap.prune((item) => item % 3 !== 0);
          model = model.filter((item) => item % 3 !== 0);
        } else {
          heap.push(next);
          model.push(next);
          model.sort((a, b) => a - b);
        }
        expect(heap.peek()).toBe(model[0]);
        expect(heap.size).toBe(model.length);
      }
    }),
  );
});
