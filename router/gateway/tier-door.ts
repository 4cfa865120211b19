// The door of the listener for the tier before: nobody comes in without a signed context, and a context counts nowhere else.
//
//   head   the context is verified before a byte of the body is read, and so is that this region is one that the tenant
//          may be served in, by the context and by this region's own rules: what should never have come here is refused,
//          whoever sent it
//   body   must be the one that the context was made for, as soon as it has come
//   once   where several processes serve one listener, another one may have let the same context in: whoever knows is
//          asked while the body comes
//
// Refused is answered as a fault of the tier that sent it (401, 421), never as one of its client's. Each is counted by its
// reason, and said in the log once a minute: it is a mistake of an operator's, a clock, or an attack.

import { FleetError } from '../../shared/errors.ts';
import { SaidLately } from '../../shared/lib/said-lately.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import type { Logger } from '../../shared/runtime/log.ts';
import { mayReside, type Residency } from '../policy/region-filter.ts';
import { certified, type CertificateRules, type Door } from './client-door.ts';
import type { Call } from './http-listener.ts';
import type { SeenRefusal } from './seen-attempts.ts';
import {
  CONTEXT_REFUSALS,
  isBody,
  type ContextDoor,
  type ContextRefusal,
  type TierContext,
} from './tier-context.ts';

export const CONTEXT_HEADER = 'x-spillway-context';

/** Why a request on the tier listener is refused. */
export const TIER_REFUSALS = [
  ...CONTEXT_REFUSALS,
  'missing', // no context at all
  'residency', // the tenant may not be served in this region
] as const;
export type TierRefusal = (typeof TIER_REFUSALS)[number];

/** What the tier before says of a request. */
export interface TierCall {
  readonly context: TierContext;
  /** Rejects with `FleetError` where the body is not the one that the context was made for, or another process let it in. */
  readonly settle: (body: Uint8Array) => Promise<void>;
}

export interface TierDoorOptions {
  readonly region: RegionId;
  readonly contexts: ContextDoor;
  /** Says whether an attempt is the first of its name in all processes of the listener. Absent: there is one process. */
  readonly claim?: ((attempt: string) => Promise<SeenRefusal | null>) | undefined;
  /** Whether this region's own rules keep a tenant out. */
  readonly keepsOut: (tenant: string) => boolean;
  readonly clock: { readonly wallMs: () => number; readonly nowMs: () => number };
  readonly log: Logger;
  /** Where the listener demands certificates, a context alone opens nothing. */
  readonly certificates: CertificateRules;
  readonly onRefused: (reason: TierRefusal) => void;
}

export function openTierDoor(options: TierDoorOptions): Door {
  const refusals = new TierRefusals(options);
  return (call) => {
    certified(options.certificates, call);
    const context = contextOf(options, refusals, call);
    const { from, tenant, saltGroup } = context.context;
    const residency = context.context.residency as Residency | null;
    const allowed = mayReside(options.region, residency) && !options.keepsOut(tenant);
    if (!allowed) throw refusals.refuse('residency', call, { from, tenant });
    const claimed = options.claim?.(context.context.attempt) ?? null;
    const settle = async (body: Uint8Array): Promise<void> => {
      if (!isBody(body, context.bodySha256)) throw refusals.refuse('other_body', call, { from });
      const why = await claimed;
      if (why !== null) throw refusals.refuse(why, call, { from });
    };
    return {
      client: from,
      // The tier before has looked at its models.
      tenant: { name: tenant, saltGroup, residency, models: null, operator: false, refusal: null },
      tier: { context: context.context, settle },
    };
  };
}

function contextOf(
  { contexts, clock }: TierDoorOptions,
  refusals: TierRefusals,
  call: Call,
): { readonly context: TierContext; readonly bodySha256: string } {
  const { headers, method = 'GET' } = call.request;
  const token = headers[CONTEXT_HEADER];
  if (typeof token !== 'string') throw refusals.refuse('missing', call);
  const verdict = contexts.open(token, { method, path: call.path }, clock.wallMs());
  if (verdict.kind === 'refused') throw refusals.refuse(verdict.why, call);
  return verdict;
}

class TierRefusals {
  readonly #options: TierDoorOptions;
  readonly #said = new SaidLately();

  constructor(options: TierDoorOptions) {
    this.#options = options;
  }

  refuse(
    reason: TierRefusal,
    call: Call,
    facts: Readonly<Record<string, string>> = {},
  ): FleetError {
    this.#options.onRefused(reason);
    this.#say(reason, { ...facts, remoteAddress: call.request.socket.remoteAddress ?? '' });
    if (reason === 'residency') {
      const message = 'The tenant may not be served in this region.';
      return new FleetError('region_not_allowed', message);
    }
    return new FleetError('context_refused', `The signed context is refused: ${WORDS[reason]}.`);
  }

  #say(reason: TierRefusal, fields: Readonly<Record<string, string>>): void {
    const { clock, log } = this.#options;
    if (!this.#said.due(reason, clock.nowMs())) return;
    if (reason === 'residency') log.error(fields, 'region_not_allowed');
    else log.warn({ reason, ...fields }, 'context_refused');
  }
}

const WORDS: Readonly<Record<ContextRefusal | 'missing', string>> = {
  missing: 'there is none',
  malformed: 'it is none',
  unknown_key: 'nobody here has its key',
  signature: 'its signature is not good',
  audience: 'it is for another region',
  expired: 'it has expired, or the clocks are apart',
  clock_ahead: 'it was made in the future: the clocks are apart',
  replayed: 'it was used before',
  too_many: 'more have come than are remembered',
  other_request: 'it was made for another request',
  other_body: 'it was made for another body',
};
