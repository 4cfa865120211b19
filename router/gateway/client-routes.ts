// The routes that clients use: what goes on to engines, and which models there are.

import { FleetError } from '../../shared/errors.ts';
import { API_ROUTES, type ApiRoute } from './api-routes.ts';
import type { Call, Route } from './http-listener.ts';
import type { RequestDesk } from './request-desk.ts';
import { mayUse, type Tenant } from './tenants.ts';
import type { Unserved } from './unserved.ts';

export interface ServedModel {
  readonly id: string;
  /** The name that engines know it by. */
  readonly root: string;
  /** Of an adapter: the model that it adapts, by the engines' name. */
  readonly parent: string | null;
  /** The least among the replicas that have it; null where none says. */
  readonly maxModelLen: number | null;
}

export interface ClientSource {
  readonly requests: Pick<RequestDesk, 'forward'>;
  readonly unserved: Pick<Unserved, 'answered'>;
  /** What a tenant may name now, as far as the tier goes by more than its list of models. */
  readonly served: (tenant: Tenant) => readonly ServedModel[];
}

export function clientRoutes({ requests, unserved, served }: ClientSource): readonly Route[] {
  return [
    ...(Object.keys(API_ROUTES) as ApiRoute[]).flatMap((route) =>
      API_ROUTES[route].paths.map((path): Route => ({
        method: 'POST',
        path,
        audience: 'clients',
        handle: (call) => requests.forward(route, call),
      })),
    ),
    {
      method: 'GET',
      path: '/v1/models',
      audience: 'clients',
      handle: (call) => {
        sendJson(call, { object: 'list', data: usable(call, served).map(modelObject) });
        unserved.answered(call);
      },
    },
    {
      method: 'GET',
      path: '/v1/models/',
      audience: 'clients',
      handle: (call) => {
        oneModel(call, usable(call, served));
        unserved.answered(call);
      },
    },
  ];
}

function usable({ tenant }: Call, served: ClientSource['served']): readonly ServedModel[] {
  return served(tenant).filter(({ id }) => mayUse(tenant, id));
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
  const { id, root, parent, maxModelLen } = model;
  const length = maxModelLen === null ? {} : { max_model_len: maxModelLen };
  return { id, object: 'model', created: 0, owned_by: 'spillway', root, parent, ...length };
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
