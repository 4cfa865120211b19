import { expect, test } from 'vitest';
import { attemptsIn, chainOf, COMPLETE, CoreRig, refusalIn, sentTo } from './core.harness.ts';

test('sends a request to the replica that holds its prefix and tells its agent', () => {
  const rig = new CoreRig();
  rig.ready('a');
  rig.ready('b');
  const prompt = chainOf([1, 2, 3, 4]);
  rig.holds('b', prompt);
  const effects = rig.arrive({ prompts: [prompt] });
  const [attempt] = attemptsIn(effects);
  expect(attempt?.target.replica).toBe('b');
  expect(attempt?.predictedPromptTokens).toBe(512);
  expect(attempt?.predictedCachedTokens).toBe(496);
  expect(sentTo(effects, 'b')).toMatchObject([{ kind: 'sent', seq: 1, uncachedTokens: 16 }]);
  expect(rig.core.leaseCount()).toBe(1);
  const ended = rig.end(attempt?.lease ?? '', COMPLETE, true);
  expect(sentTo(ended, 'b')).toMatchObject([{ kind: 'ended', seq: 2, outcome: 'complete' }]);
  expect(rig.core.leaseCount()).toBe(0);
});

test('a request for a model that nobody serves is 404, for one without a replica 503', () => {
  const rig = new CoreRig();
  expect(refusalIn(rig.arrive({ model: 'nope' }))?.code).toBe('model_not_found');
  expect(refusalIn(rig.arrive())?.code).toBe('no_replica');
});
