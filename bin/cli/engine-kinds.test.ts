import { expect, it } from 'vitest';
import { engineKinds } from './engine-kinds.ts';

it('takes one kind for all engines, or one for each', () => {
  expect(engineKinds(undefined, 2)).toEqual([null, null]);
  expect(engineKinds(['tgi'], 2)).toEqual(['tgi', 'tgi']);
  expect(engineKinds(['vllm', 'auto'], 2)).toEqual(['vllm', null]);
});

it('refuses another number of kinds, and kinds that it does not know', () => {
  expect(() => engineKinds(['vllm', 'tgi'], 3)).toThrow(/3 × --engine and 2 × --engine-kind/);
  expect(() => engineKinds(['ollama'], 1)).toThrow(
    '--engine-kind ollama: must be auto, vllm, sglang, tgi, llamacpp or generic',
  );
});
