// What an engine is, by its own words: its model list with what only its kind knows added.

import type { EngineKind } from '../../shared/model/engine-kind.ts';
import type { IdentityResult } from '../events.ts';
import { detailOf, type EngineClient } from './client.ts';
import { nameOf, readModelList } from './model-list.ts';

export interface IdentityQuestion {
  readonly kind: EngineKind;
  readonly timeoutMs: number;
  /** As the engine wrote it; what is no name is dropped. */
  readonly version: Promise<unknown>;
  /** Context length of models that do not say theirs, tokens. */
  readonly maxModelLen?: Promise<number | null>;
}

export async function identifyByModels(
  client: EngineClient,
  { kind, timeoutMs, version, maxModelLen }: IdentityQuestion,
): Promise<IdentityResult> {
  const [listed, said, length] = await Promise.all([
    client.get('/v1/models', timeoutMs),
    version,
    maxModelLen ?? null,
  ]);
  if (listed.kind !== 'answer') return { kind: 'failed', detail: detailOf(listed) };
  if (listed.status !== 200) return { kind: 'failed', detail: `models: status ${listed.status}` };
  const list = readModelList(listed.body);
  if (list === null) return { kind: 'failed', detail: 'models: not a model list' };
  const models = list.models.map((model) => ({
    ...model,
    maxModelLen: model.maxModelLen ?? length,
  }));
  return { kind: 'ok', identity: { kind, version: nameOf(said), models } };
}
