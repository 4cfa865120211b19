// All engines of one `up` together: every problem of every URL at once, or what was found at each.

import { ENGINE_TITLES, type EngineKind } from '../../shared/model/engine-kind.ts';
import type { PeerTrust } from '../../shared/runtime/http-pool.ts';
import { engineAddress } from './address.ts';
import { detectEngine } from './detect.ts';
import type { Detection, EngineFacts } from './facts.ts';

/** Of a server's models, in one line. */
const NAMED_MODELS = 8;

export interface SurveyedEngine {
  readonly url: string;
  /** As the person said. */
  readonly kind: EngineKind | null;
  readonly detection: Exclude<Detection, { kind: 'wrong' }>;
}

export type Survey =
  | { readonly ok: true; readonly engines: readonly SurveyedEngine[] }
  | { readonly ok: false; readonly problems: readonly string[] };

export interface SurveyOptions {
  readonly urls: readonly string[];
  /** What each is, in the order of `urls`; null: found out. */
  readonly kinds: readonly (EngineKind | null)[];
  readonly apiKey: string | null;
  /** For https engines; null or absent: the system's CAs. */
  readonly trust?: PeerTrust | null;
  readonly timeoutMs: number;
}

export async function surveyEngines({
  urls,
  kinds,
  apiKey,
  trust = null,
  timeoutMs,
}: SurveyOptions): Promise<Survey> {
  const addresses = await Promise.all(urls.map((url) => engineAddress(url)));
  const problems: string[] = [];
  const seen = new Map<string, string>();
  const distinct: { readonly url: string; readonly kind: EngineKind | null }[] = [];
  for (const [i, address] of addresses.entries()) {
    if (!address.ok) {
      problems.push(address.problem);
      continue;
    }
    const earlier = seen.get(address.key);
    if (earlier === undefined) distinct.push({ url: address.url, kind: kinds[i] ?? null });
    else problems.push(`${urls[i] ?? ''}: is the same engine as ${earlier}`);
    if (earlier === undefined) seen.set(address.key, address.url);
  }
  const detections = await Promise.all(
    distinct.map(({ url, kind }) =>
      detectEngine({ url, apiKey, trust, engineKind: kind, timeoutMs }),
    ),
  );
  const engines = distinct.flatMap(({ url, kind }, i): SurveyedEngine[] => {
    const detection = detections[i];
    if (detection === undefined) return [];
    if (detection.kind !== 'wrong') return [{ url, kind, detection }];
    problems.push(detection.why);
    return [];
  });
  problems.push(...modelProblems(engines));
  return problems.length > 0 ? { ok: false, problems } : { ok: true, engines };
}

/** `up` makes one pool, and a pool has one base model. */
function modelProblems(engines: readonly SurveyedEngine[]): string[] {
  const found = engines.flatMap(({ url, detection }) =>
    detection.kind === 'found' ? [{ url, models: detection.facts.models }] : [],
  );
  const first = found[0];
  const other = found.find((engine) => engine.models.join('\n') !== first?.models.join('\n'));
  if (first === undefined || other === undefined) return [];
  return [
    `${other.url}: serves ${named(other.models)}, but ${first.url} serves ${named(first.models)}: engines of one pool serve the same model; start one \`spillway up\` for each, or use fleet.yaml with two pools`,
  ];
}

/** A server may have hundreds. */
function named(models: readonly string[]): string {
  const more = models.length - NAMED_MODELS;
  const shown = models.slice(0, NAMED_MODELS).join(', ');
  return more > 0 ? `${shown} and ${more} more` : shown;
}

/** What figures mean to a person, and what is done without them. */
const UNKNOWN: Readonly<Record<EngineFacts['unknown'][number], string>> = {
  running: 'how many requests it runs',
  waiting: 'how many requests wait in it',
  kvUsageRatio: 'how full its KV cache is',
  kvCapacityTokens: 'how much its KV cache holds',
  computedTokensTotal: 'how many prompt tokens it computed',
  cachedTokensTotal: 'how many it found cached',
  generationTokensTotal: 'how many tokens it generated',
  preemptionsTotal: 'preemptions',
  firstTokensTotal: 'how many first tokens it gave',
  itlCount: 'the time between tokens',
};

/** What was found, in lines for a person. */
export function describeSurvey(engines: readonly SurveyedEngine[]): string[] {
  return engines.flatMap(({ url, detection }) => {
    if (detection.kind === 'waiting') return [`waiting  ${detection.why}`];
    const { facts } = detection;
    const { kind, answersAs, version, models, maxModelLen, ranks, findings, unknown } = facts;
    const length = maxModelLen === null ? '' : `, ${maxModelLen} tokens of context`;
    const several = ranks > 1 ? `, ${ranks} data-parallel ranks` : '';
    const what = `${ENGINE_TITLES[kind]}${version === null ? '' : ` ${version}`}`;
    const told = unknown.map((name) => UNKNOWN[name]).join(', ');
    return [
      `found    ${url}: ${what}, ${named(models)}${length}${several}`,
      ...(answersAs === null
        ? []
        : [
            `         taken for ${ENGINE_TITLES[kind]}, as you said; it answers as ${ENGINE_TITLES[answersAs]}`,
          ]),
      ...findings.map(({ missing, cost }) => `         without ${missing}: ${cost}`),
      ...(told === '' ? [] : [`         it does not tell (see docs/engines.md): ${told}`]),
    ];
  });
}
