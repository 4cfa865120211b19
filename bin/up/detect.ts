// Looks at what listens at an engine's URL: is it an engine, which kind and version, which models, and what of
// its configuration Spillway would miss. Refused connections are no error: an engine that loads its weights refuses.
//
// The first question is asked by hand, so that whatever is wrong with it can be said in a person's words; the rest is
// seen with an agent's eyes.

import { lookAtEngine, type EngineSight } from '../../agent/look.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { createLog } from '../../shared/runtime/log.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { ask, type Answer } from './ask.ts';
import { completionFindings } from './completion-check.ts';
import type { Detection, DetectOptions } from './facts.ts';
import { explainFailure, speaksHttps } from './failure.ts';
import { configurationFindings, hasMetrics } from './metrics-check.ts';

export async function detectEngine(options: DetectOptions): Promise<Detection> {
  let answer: Answer;
  try {
    answer = await ask({ path: '/v1/models' }, options);
  } catch (cause) {
    return explainFailure(cause, options);
  }
  const refusal = explainStatus(answer, options.url);
  if (refusal !== null) return refusal;
  const look = await lookFrom(options);
  if (look.kind === 'unready') return stillLoading(options.url, look.detail);
  if (look.kind === 'failed') return notAnEngine(options.url, answer);
  const { sight } = look;
  return sight.models.length === 0 ? notAnEngine(options.url, answer) : describe(sight, options);
}

/** Some engines have figures from their first request on: what is missing is looked for after the completions. */
async function describe(sight: EngineSight, options: DetectOptions): Promise<Detection> {
  const { kind, detected, version, models } = sight;
  const model = models[0]?.id ?? '';
  const completions = await completionFindings({ ...options, model, kind });
  const again = sight.absent.length === 0 ? null : await lookFrom(options);
  const seen = again?.kind === 'engine' ? again.sight : sight;
  const configuration = await configurationFindings(seen, options);
  const facts = {
    kind,
    answersAs: detected === kind ? null : detected,
    version,
    models: models.map(({ id }) => id).sort(),
    maxModelLen: models[0]?.maxModelLen ?? null,
    ranks: seen.ranks,
    findings: [...configuration, ...completions],
    unknown: hasMetrics(seen) ? seen.absent.filter((name) => !comesLater(name, kind)) : [],
  };
  return { kind: 'found', facts };
}

/** SGLang counts the time between tokens of streams only, and none has been sent yet. */
function comesLater(figure: EngineSight['absent'][number], kind: EngineSight['kind']): boolean {
  return kind === 'sglang' && figure === 'itlCount';
}

function lookFrom({ url, apiKey, trust, engineKind, timeoutMs }: DetectOptions) {
  const log = createLog({ level: 'silent', readable: false });
  const runtime = { clock: systemClock, timers: systemTimers, log };
  return lookAtEngine({ url, apiKey, trust: trust ?? null, kind: engineKind, timeoutMs }, runtime);
}

function explainStatus({ status, text }: Answer, url: string): Detection | null {
  if (status === 401 || status === 403) {
    const key = `${url}: asks for a key (HTTP ${status}): set SPILLWAY_ENGINE_API_KEY to the engine's own key`;
    return { kind: 'wrong', why: key };
  }
  if (status === 503) return stillLoading(url, `HTTP ${status}`);
  return status === 400 && /https/i.test(text) ? speaksHttps(url) : null;
}

function stillLoading(url: string, detail: string): Detection {
  return { kind: 'waiting', why: `${url}: still loading (${detail})` };
}

function notAnEngine(url: string, { status }: Answer): Detection {
  const detail = status === 200 ? '' : ` (HTTP ${status})`;
  const why = `${url}: answers HTTP but is no engine: it has no model list at /v1/models${detail}`;
  return { kind: 'wrong', why };
}
