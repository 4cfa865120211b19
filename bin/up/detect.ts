// Looks at what listens at an engine's URL: is it an engine, which kind and version, which models, and what of
// its configuration Spillway would miss. Refused connections are no error: an engine that loads its weights refuses.

import { ask, askQuietly, parsed, type Answer } from './ask.ts';
import { completionFindings } from './completion-check.ts';
import type { Detection, DetectOptions, EngineFacts } from './facts.ts';
import { explainFailure, speaksHttps } from './failure.ts';
import { metricsFindings } from './metrics-check.ts';

export async function detectEngine(options: DetectOptions): Promise<Detection> {
  let answer: Answer;
  try {
    answer = await ask({ path: '/v1/models' }, options);
  } catch (cause) {
    return explainFailure(cause, options);
  }
  const refusal = explainStatus(answer, options.url);
  if (refusal !== null) return refusal;
  const models = modelsOf(answer.text);
  if (models === null) return notAnEngine(options.url);
  return { kind: 'found', facts: await describe(models, options) };
}

interface ModelRow {
  readonly id: string;
  readonly ownedBy: string | null;
  readonly maxModelLen: number | null;
}

async function describe(rows: readonly ModelRow[], options: DetectOptions): Promise<EngineFacts> {
  const version = await askQuietly('/version', options);
  const metrics = await askQuietly('/metrics', options);
  const kind = kindOf(rows[0]?.ownedBy ?? null, metrics);
  const model = rows[0]?.id ?? '';
  return {
    kind,
    version: versionOf(version),
    models: rows.map((row) => row.id).sort(),
    maxModelLen: rows[0]?.maxModelLen ?? null,
    findings: [
      ...metricsFindings(metrics, kind),
      ...(await completionFindings({ ...options, model, kind })),
    ],
  };
}

function kindOf(ownedBy: string | null, metrics: string | null): EngineFacts['kind'] {
  if (/^vllm[:_]/m.test(metrics ?? '')) return 'vllm';
  if (/^sglang[:_]/m.test(metrics ?? '')) return 'sglang';
  if (/^tgi_/m.test(metrics ?? '')) return 'tgi';
  return ownedBy === 'vllm' || ownedBy === 'sglang' ? ownedBy : 'unknown';
}

/** Base models in the engine's order; null when the answer is no model list. */
function modelsOf(text: string): readonly ModelRow[] | null {
  const body = parsed(text);
  const data = body !== null && Array.isArray(body['data']) ? (body['data'] as unknown[]) : null;
  if (data === null) return null;
  const rows = data.flatMap((item): ModelRow[] => {
    if (typeof item !== 'object' || item === null) return [];
    const row = item as Record<string, unknown>;
    if (typeof row['id'] !== 'string' || typeof row['parent'] === 'string') return [];
    const length = row['max_model_len'];
    const owner = row['owned_by'];
    return [
      {
        id: row['id'],
        ownedBy: typeof owner === 'string' ? owner : null,
        maxModelLen: typeof length === 'number' ? length : null,
      },
    ];
  });
  return rows.length > 0 ? rows : null;
}

function versionOf(text: string | null): string | null {
  const version = parsed(text ?? '')?.['version'];
  return typeof version === 'string' ? version : null;
}

function explainStatus({ status, text }: Answer, url: string): Detection | null {
  if (status === 200) return null;
  if (status === 401 || status === 403) {
    const key = `${url}: asks for a key (HTTP ${status}): set SPILLWAY_ENGINE_API_KEY to the engine's own key`;
    return { kind: 'wrong', why: key };
  }
  if (status === 503) return { kind: 'waiting', why: `${url}: still loading (HTTP 503)` };
  if (status === 400 && /https/i.test(text)) return speaksHttps(url);
  return notAnEngine(url, ` (HTTP ${status})`);
}

function notAnEngine(url: string, detail = ''): Detection {
  const why = `${url}: answers HTTP but is no engine: it has no model list at /v1/models${detail}`;
  return { kind: 'wrong', why };
}
