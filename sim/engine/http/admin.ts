// `/sim/…`: what a test or a demonstration does to a simulated engine, and what it may know of it. No part of vLLM.

import type { ServerResponse } from 'node:http';

import { NOT_FOUND, sendReply, type Reply } from './reply.ts';
import type { RunningEngine } from './running-engine.ts';
import type { EngineHost } from './surface.ts';

type JsonObject = Readonly<Record<string, unknown>>;

interface AdminAnswer {
  readonly reply: Reply;
  /** Done once the answer is out: a crash takes the caller's own connection with it. */
  readonly after?: () => void;
}

const NOT_JSON: AdminAnswer = {
  reply: { status: 400, body: { error: 'the body is no JSON object' } },
};
const DONE: AdminAnswer = { reply: { status: 200, body: {} } };

export function serveAdmin(
  engine: RunningEngine & EngineHost,
  call: { readonly method: string; readonly path: string; readonly body: Buffer },
  response: ServerResponse,
): void {
  const body = readObject(call.body);
  const answer = body === null ? NOT_JSON : answerAdmin(engine, { ...call, body });
  if (answer?.after !== undefined) response.once('finish', answer.after);
  sendReply(response, answer?.reply ?? NOT_FOUND, engine.runtime.clock.wallMs());
}

/** The object of a body, empty where there is none; null when it is something else. */
function readObject(body: Buffer): JsonObject | null {
  if (body.length === 0) return {};
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as JsonObject)
      : null;
  } catch {
    return null;
  }
}

/** The answer to an admin call; null when there is no such call. */
function answerAdmin(
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
    case 'POST /sim/fail-batch':
      return engine.failBatch() ? DONE : null;
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
    case 'GET /sim/kv-endpoints':
      return { reply: { status: 200, body: { ranks: engine.kvEndpoints() } } };
    case 'POST /sim/drop-events': {
      const count = numberOf(body['count']);
      if (count === null || count < 0) {
        return { reply: { status: 400, body: { error: 'count: a number from 0 is needed' } } };
      }
      engine.dropKvEvents(count);
      return DONE;
    }
    default:
      return null;
  }
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}
