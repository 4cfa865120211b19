// All engines of one `up` together: every problem of every URL at once, or what was found at each.

import { engineAddress } from './address.ts';
import { detectEngine } from './detect.ts';
import type { Detection, EngineFacts } from './facts.ts';

export interface SurveyedEngine {
  readonly url: string;
  readonly detection: Exclude<Detection, { kind: 'wrong' }>;
}

export type Survey =
  | { readonly ok: true; readonly engines: readonly SurveyedEngine[] }
  | { readonly ok: false; readonly problems: readonly string[] };

export interface SurveyOptions {
  readonly urls: readonly string[];
  readonly apiKey: string | null;
  readonly timeoutMs: number;
}

export async function surveyEngines({ urls, apiKey, timeoutMs }: SurveyOptions): Promise<Survey> {
  const addresses = await Promise.all(urls.map((url) => engineAddress(url)));
  const problems: string[] = [];
  const seen = new Map<string, string>();
  const distinct: string[] = [];
  for (const [i, address] of addresses.entries()) {
    if (!address.ok) {
      problems.push(address.problem);
      continue;
    }
    const earlier = seen.get(address.key);
    if (earlier === undefined) distinct.push(address.url);
    else problems.push(`${urls[i] ?? ''}: is the same engine as ${earlier}`);
    if (earlier === undefined) seen.set(address.key, address.url);
  }
  const detections = await Promise.all(
    distinct.map((url) => detectEngine({ url, apiKey, timeoutMs })),
  );
  const engines = distinct.flatMap((url, i): SurveyedEngine[] => {
    const detection = detections[i];
    if (detection === undefined) return [];
    if (detection.kind !== 'wrong') return [{ url, detection }];
    problems.push(detection.why);
    return [];
  });
  problems.push(...modelProblems(engines));
  return problems.length > 0 ? { ok: false, problems } : { ok: true, engines };
}

/** `up` makes one pool, and a pool has one base model. */
function modelProblems(engines: readonly SurveyedEngine[]): string[] {
  const found = engines.flatMap(({ url, detection }) =>
    detection.kind === 'found' ? [{ url, models: detection.facts.models.join(', ') }] : [],
  );
  const first = found[0];
  const other = found.find((engine) => engine.models !== first?.models);
  if (first === undefined || other === undefined) return [];
  return [
    `${other.url}: serves ${other.models}, but ${first.url} serves ${first.models}: engines of one pool serve the same model; start one \`spillway up\` for each, or use fleet.yaml with two pools`,
  ];
}

const KINDS: Readonly<Record<EngineFacts['kind'], string>> = {
  vllm: 'vLLM',
  sglang: 'SGLang',
  tgi: 'TGI',
  unknown: 'unknown engine',
};

/** What was found, in lines for a person. */
export function describeSurvey(engines: readonly SurveyedEngine[]): string[] {
  return engines.flatMap(({ url, detection }) => {
    if (detection.kind === 'waiting') return [`waiting  ${detection.why}`];
    const { kind, version, models, maxModelLen, findings } = detection.facts;
    const length = maxModelLen === null ? '' : `, ${maxModelLen} tokens of context`;
    const what = `${KINDS[kind]}${version === null ? '' : ` ${version}`}`;
    return [
      `found    ${url}: ${what}, ${models.join(', ')}${length}`,
      ...findings.map(({ missing, cost }) => `         without ${missing}: ${cost}`),
    ];
  });
}
