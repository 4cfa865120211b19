// `/sim/…`: what a test or a demonstration does to a simulated engine, and what it may know of it. No part of vLLM.

import type { JsonObject } from './vllm/parse.ts';
import type { Reply } from './reply.ts';
import type { RunningEngine } from './server.ts';

export interface AdminAnswer {
  readonly reply: Reply;
  /** Done once the answer is out: a crash takes the caller's own connection with it. */
  readonly after?: () => void;
}

const DONE: AdminAnswer = { reply: { status: 200, body: {} } };

/** The answer to an admin call; null when there is no such call. */
export function answerAdmin(
  engine: RunningEngine,
  call: { readonly method: string; readonly path: string; readonly body: JsonObject },
): AdminAnswer | null {
  const { body } = call;
  switch (`${call.method} ${call.path}`) {
    case 'GET /sim/state':
      return { reply: { status: 200, body: engine.state() } };
    case 'GET /sim/received':
      return { reply: { status: 200, body: { requests: engine.received() } } };
    case 'DELETE /sim/received':
      engine.clearReceived();
      return DONE;
    case 'POST /sim/crash': {
      const restartAfterMs = numberOf(body['restartAfterMs']);
      const options = restartAfterMs === null ? {} : { restartAfterMs };
      return { ...DONE, after: () => void engine.crash(options) };
    }
    case 'POST /sim/kill-core':
      engine.killCore();
      return DONE;
    case 'POST /sim/freeze':
      engine.freeze();
      return DONE;
    case 'POST /sim/thaw':
      engine.thaw();
      return DONE;
    case 'POST /sim/slow': {
      const factor = numberOf(body['factor']);
      if (factor === null || factor <= 0) {
        return { reply: { status: 400, body: { error: 'factor: a number above 0 is needed' } } };
      }
      engine.slow(factor);
      return DONE;
    }
    default:
      return null;
  }
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}
