import { expect, test } from 'vitest';
import { CoreRig } from './core.harness.ts';
import type { PoolId } from '../../shared/model/ids.ts';
import { servedModels } from './served-models.ts';

const pool = (id: string, models: string[], aliases: Record<string, string>) => ({
  id: id as PoolId,
  models,
  aliases,
});
const REPORT = {
  models: [
    { id: 'org/base', maxModelLen: 8_192, loras: ['org/adapter'] },
    { id: 'small', maxModelLen: 512, loras: [] },
  ],
};

function servedBy(config: ReturnType<typeof pool>) {
  const rig = new CoreRig({ pools: [config] });
  const before = servedModels(rig.core.status(rig.nowMs).pools, [config]);
  rig.link('a', { pool: config.id });
  rig.report('a', REPORT);
  return { before, after: servedModels(rig.core.status(rig.nowMs).pools, [config]) };
}

test('a pool without configured models serves what its replicas report, adapters among them', () => {
  const { before, after } = servedBy(pool('pool', [], {}));
  expect(before).toEqual([]);
  expect(after).toEqual([
    { id: 'org/base', root: 'org/base', parent: null, maxModelLen: 8_192 },
    { id: 'org/adapter', root: 'org/adapter', parent: 'org/base', maxModelLen: 8_192 },
    { id: 'small', root: 'small', parent: null, maxModelLen: 512 },
  ]);
});

test('a configured pool serves its public names, with the facts of what they stand for', () => {
  const { after } = servedBy(
    pool('pool', ['chat', 'tuned'], { chat: 'org/base', tuned: 'org/adapter' }),
  );
  expect(after).toEqual([
    { id: 'chat', root: 'org/base', parent: null, maxModelLen: 8_192 },
    { id: 'tuned', root: 'org/adapter', parent: 'org/base', maxModelLen: 8_192 },
  ]);
});

test('the context is the least of the replicas that have the model', () => {
  const rig = new CoreRig({ pools: [pool('pool', [], {})] });
  rig.ready('a', { models: [{ id: 'm', maxModelLen: 4_096, loras: [] }] });
  rig.ready('b', { models: [{ id: 'm', maxModelLen: 2_048, loras: [] }] });
  rig.ready('c', { models: [{ id: 'm', maxModelLen: null, loras: [] }] });
  const [model] = servedModels(rig.core.status(rig.nowMs).pools, []);
  expect(model?.maxModelLen).toBe(2_048);
});

test('a name like a member of every object is a name', () => {
  const rig = new CoreRig({ pools: [pool('pool', [], {})] });
  rig.ready('a', { models: [{ id: 'constructor', maxModelLen: null, loras: [] }] });
  expect(servedModels(rig.core.status(rig.nowMs).pools, [pool('pool', [], {})])).toEqual([
    { id: 'constructor', root: 'constructor', parent: null, maxModelLen: null },
  ]);
});
