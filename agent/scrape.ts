// Asking an engine for its figures and for what it is.

import { ENGINE_KINDS } from '../shared/model/engine-kind.ts';
import type { ModelInfo } from '../shared/model/report.ts';
import { MAX_MODELS, MAX_TEXT } from '../shared/protocol/limits.ts';
import type { EngineClient, EngineFailure } from './engines/client.ts';
import { readVllmMetrics } from './engines/vllm.ts';
import { absentRank } from './events.ts';
import type { EngineScrape, IdentityResult, ScrapeResult } from './events.ts';

const SCRAPE_TIMEOUT_MS = 5_000;
const IDENTIFY_TIMEOUT_MS = 5_000;

export async function scrapeEngine(
  client: EngineClient,
  timeoutMs: number = SCRAPE_TIMEOUT_MS,
): Promise<ScrapeResult> {
  const fetched = await client.get('/metrics', timeoutMs);
  if (fetched.kind === 'refused') return { kind: 'refused' };
  if (fetched.kind !== 'answer') return { kind: 'failed', detail: detailOf(fetched) };
  if (fetched.status === 404) return { kind: 'ok', scrape: withoutMetrics() };
  if (fetched.status !== 200) return { kind: 'failed', detail: `status ${fetched.status}` };
  return { kind: 'ok', scrape: readVllmMetrics(fetched.body) ?? withoutMetrics() };
}

export async function identifyEngine(client: EngineClient): Promise<IdentityResult> {
  const [models, version] = await Promise.all([
    client.get('/v1/models', IDENTIFY_TIMEOUT_MS),
    client.get('/version', IDENTIFY_TIMEOUT_MS),
  ]);
  if (models.kind !== 'answer') return { kind: 'failed', detail: detailOf(models) };
  if (models.status !== 200) return { kind: 'failed', detail: `models: status ${models.status}` };
  const rows = modelRows(models.body);
  if (rows === null) return { kind: 'failed', detail: 'models: not a model list' };
  const said = version.kind === 'answer' && version.status === 200 ? parsed(version.body) : null;
  return {
    kind: 'ok',
    identity: {
      kind: ENGINE_KINDS.find((kind) => rows.some((row) => row.owner === kind)) ?? 'generic',
      version: nameOf(said?.['version']),
      models: modelsOf(rows),
    },
  };
}

/** An engine whose statistics are switched off: everything unknown, nothing zero. */
function withoutMetrics(): EngineScrape {
  return { startTimeSeconds: null, ranks: [absentRank(0)] };
}

function detailOf(failure: EngineFailure): string {
  return failure.kind === 'failed' ? failure.detail : failure.kind;
}

interface ModelRow {
  readonly id: string;
  readonly parent: string | null;
  readonly owner: string | null;
  readonly maxModelLen: number | null;
}

/** Null where the body is no model list. */
function modelRows(body: string): readonly ModelRow[] | null {
  const data = parsed(body)?.['data'];
  if (!Array.isArray(data)) return null;
  return data.slice(0, MAX_MODELS).flatMap((item: unknown): ModelRow[] => {
    if (typeof item !== 'object' || item === null) return [];
    const row = item as Record<string, unknown>;
    const id = nameOf(row['id']);
    if (id === null) return [];
    const length = row['max_model_len'];
    return [
      {
        id,
        parent: nameOf(row['parent']),
        owner: nameOf(row['owned_by']),
        maxModelLen: typeof length === 'number' && length > 0 ? length : null,
      },
    ];
  });
}

/** A name that a report can carry: one that is too long would end the link to every router. */
function nameOf(value: unknown): string | null {
  return typeof value === 'string' && value.length <= MAX_TEXT ? value : null;
}

/** Adapters stand in the list as models with a parent; here they belong to it. */
function modelsOf(rows: readonly ModelRow[]): ModelInfo[] {
  return rows
    .filter((row) => row.parent === null)
    .map(({ id, maxModelLen }) => ({
      id,
      maxModelLen,
      loras: rows.filter((row) => row.parent === id).map((row) => row.id),
    }));
}

function parsed(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    // What is not JSON is not an engine's answer; the caller says so.
    return null;
  }
}
