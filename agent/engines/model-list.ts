// `/v1/models`: base models, the adapters that belong to them, and who serves them.

import type { ModelInfo } from '../../shared/model/report.ts';
import { MAX_MODELS, MAX_TEXT } from '../../shared/protocol/limits.ts';
import { amountOf, objectOf, parseObject, positiveOf, textOf } from './foreign-json.ts';

export interface ModelList {
  readonly models: readonly ModelInfo[];
  /** Names in `owned_by`: vLLM, SGLang and llama.cpp sign here. */
  readonly owners: readonly string[];
}

interface Row {
  readonly id: string;
  readonly parent: string | null;
  readonly owner: string | null;
  readonly maxModelLen: number | null;
}

/** Null where the body is no model list. */
export function readModelList(body: string): ModelList | null {
  const data = parseObject(body)?.['data'];
  if (!Array.isArray(data)) return null;
  const rows = data.slice(0, MAX_MODELS).flatMap((item) => rowOf(item));
  return {
    owners: rows.flatMap((row) => (row.owner === null ? [] : [row.owner])),
    models: rows
      .filter((row) => row.parent === null)
      .map(({ id, maxModelLen }) => ({
        id,
        maxModelLen,
        loras: rows.filter((row) => row.parent === id).map((row) => row.id),
      })),
  };
}

/** A name that a report can carry: one that is too long would end the link to every router. */
export function nameOf(value: unknown): string | null {
  const text = textOf(value);
  return text !== null && text.length <= MAX_TEXT ? text : null;
}

function rowOf(item: unknown): Row[] {
  const row = objectOf(item);
  const id = nameOf(row?.['id']);
  if (row === null || id === null) return [];
  return [
    {
      id,
      parent: nameOf(row['parent']),
      owner: nameOf(row['owned_by']),
      maxModelLen: positiveOf(amountOf(row['max_model_len'])),
    },
  ];
}
