// The routes that clients use: generation, and which models there are.

import { FleetError } from '../../shared/errors.ts';
import type { Call, Route } from './http-listener.ts';
import type { RequestDesk } from './request-desk.ts';

export interface ServedModel {
  readonly id: string;
  readonly maxModelLen: number | null;
}

/** `served` lists what clients may name now. */
export function clientRoutes(
  requests: RequestDesk,
  served: () => readonly ServedModel[],
): readonly Route[] {
  return [
    {
      method: 'POST',
      path: '/v1/chat/completions',
      handle: (call) => requests.generate('chat', call),
    },
    {
      method: 'POST',
      path: '/v1/completions',
      handle: (call) => requests.generate('completions', call),
    },
    {
      method: 'GET',
      path: '/v1/models',
      handle: (call) => {
        sendJson(call, { object: 'list', data: served().map(modelObject) });
        requests.answered(call);
      },
    },
    {
      method: 'GET',
      path: '/v1/models/',
      handle: (call) => {
        oneModel(call, served());
        requests.answered(call);
      },
    },
  ];
}

function oneModel(call: Call, served: readonly ServedModel[]): void {
  const id = decodeURIComponentSafely(call.path.slice('/v1/models/'.length));
  const model = served.find((each) => each.id === id);
  if (model === undefined) {
    throw new FleetError('model_not_found', 'The model does not exist.', { param: 'model' });
  }
  sendJson(call, modelObject(model));
}

function modelObject(model: ServedModel): object {
  const length = model.maxModelLen === null ? {} : { max_model_len: model.maxModelLen };
  return { id: model.id, object: 'model', created: 0, owned_by: 'spillway', ...length };
}

/** Answers 200 (or `status`) with a JSON value. */
export function sendJson(call: Call, value: unknown, status = 200): void {
  sendText(call, `${JSON.stringify(value)}\n`, { contentType: 'application/json', status });
}

export function sendText(
  call: Call,
  text: string,
  facts: { readonly contentType: string; readonly status?: number },
): void {
  const body = Buffer.from(text);
  const { contentType, status = 200 } = facts;
  call.reply.beginAnswer(status, { contentType, length: body.length }, {});
  call.reply.write(body, call.arrivedMs);
  call.reply.end();
}

function decodeURIComponentSafely(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // A malformed escape names no model; as it stands it matches none.
    return text;
  }
}
