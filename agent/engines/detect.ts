// Which engine listens at a URL, by what it answers. The first of these that tells decides:
//
//   1  prefix of its metrics          vllm: sglang: tgi_ llamacpp:   (vllm_ under Ray)
//   2  `owned_by` in its model list   vllm sglang llamacpp           (TGI writes its model there)
//   3  a page that only one kind has  /server_info, /info, /props
//   4  a model list                   generic
//
// `sure` is false where a question that could have said otherwise was not answered: what is known already stands then.
//
// What answers 503 to its model list and has no metrics yet loads; what has no model list is no engine.

import type { EngineKind } from '../../shared/model/engine-kind.ts';
import { detailOf, type EngineClient, type Fetched } from './client.ts';
import { parseObject } from './foreign-json.ts';
import { readModelList } from './model-list.ts';
import { infoOf } from './tgi.ts';

export type KindResult =
  | {
      readonly kind: 'engine';
      readonly engine: EngineKind;
      readonly by: string;
      readonly sure: boolean;
    }
  | { readonly kind: 'refused' }
  | { readonly kind: 'unready'; readonly stage: 'loading'; readonly detail: string }
  | { readonly kind: 'failed'; readonly detail: string };

export async function detectKind(client: EngineClient, timeoutMs: number): Promise<KindResult> {
  const [models, metrics] = await Promise.all([
    client.get('/v1/models', timeoutMs),
    client.get('/metrics', timeoutMs),
  ]);
  if (models.kind !== 'answer' && metrics.kind !== 'answer') {
    if (models.kind === 'refused') return { kind: 'refused' };
    return { kind: 'failed', detail: `models: ${detailOf(models)}` };
  }
  const exposed = bodyOf(metrics) === null ? null : kindOfMetrics(bodyOf(metrics) ?? '');
  if (exposed !== null) return engine(exposed, 'metrics');
  const list = readModelList(bodyOf(models) ?? '');
  const signed = SIGNED.find((kind) => list?.owners.includes(kind) === true);
  if (signed !== undefined) return engine(signed, 'owned_by');
  if (models.kind === 'answer' && models.status === 503) {
    return { kind: 'unready', stage: 'loading', detail: 'models: status 503' };
  }
  const pages = await Promise.all(PAGES.map((path) => client.get(path, timeoutMs)));
  const page = kindOfPages(pages);
  if (page !== null) return page;
  if (list !== null) {
    const sure = [metrics, ...pages].every(({ kind }) => kind === 'answer');
    return { ...engine('generic', 'a model list'), sure };
  }
  const detail = models.kind === 'answer' ? answerDetail(models.status) : detailOf(models);
  return { kind: 'failed', detail: `models: ${detail}` };
}

/** Null where no engine's series are in it. */
export function kindOfMetrics(exposition: string): EngineKind | null {
  return PREFIXES.find(([, prefix]) => prefix.test(exposition))?.[0] ?? null;
}

const PREFIXES: readonly (readonly [EngineKind, RegExp])[] = [
  ['vllm', /^(?:ray_)?vllm[:_]/m],
  ['sglang', /^sglang[:_]/m],
  ['tgi', /^tgi_/m],
  ['llamacpp', /^llamacpp:/m],
];

const SIGNED: readonly EngineKind[] = ['vllm', 'sglang', 'llamacpp'];

const PAGES = ['/server_info', '/info', '/props'] as const;

/** `pages`: what those answered. */
function kindOfPages([server, info, props]: readonly Fetched[]): KindResult | null {
  if (has(server, 'tokenizer_path', 'mem_fraction_static')) return engine('sglang', '/server_info');
  if (info !== undefined && infoOf(info) !== null) return engine('tgi', '/info');
  if (has(props, 'total_slots', 'default_generation_settings')) return engine('llamacpp', '/props');
  return null;
}

function engine(kind: EngineKind, by: string): Extract<KindResult, { readonly kind: 'engine' }> {
  return { kind: 'engine', engine: kind, by, sure: true };
}

function has(fetched: Fetched | undefined, ...members: readonly string[]): boolean {
  const body = fetched === undefined ? null : parseObject(bodyOf(fetched) ?? '');
  return body !== null && members.every((member) => member in body);
}

function bodyOf(fetched: Fetched): string | null {
  return fetched.kind === 'answer' && fetched.status === 200 ? fetched.body : null;
}

function answerDetail(status: number): string {
  return status === 200 ? 'not a model list' : `status ${status}`;
}
