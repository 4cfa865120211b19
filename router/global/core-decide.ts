// One request, all regions: send, spill, wait or refuse, as a value. Nothing is changed here, so that explain and serving
// decide alike; serving then draws and pays, explain shows the probabilities.
//
//   filter → home → where the conversation lives → gate of that place → credit of receivers → softmax
//
//   new conversation   home, unless home's gate lets one abroad: then drawn among home and receivers with credit
//   one that lives     where it lives; elsewhere only for load: staying costs more by `moveFactor` × `spillStartMs` in
//                      two reports running, on credit for its whole history, through the same gate, not twice in a while
//   paused             a region that asks for time gets nothing: what may go abroad does, the rest waits or is refused
//
// What goes to another region than the one it belongs to, while that one could be used, is a spill and is paid for.

import type {
  GlobalDecision,
  GlobalDecisionKind,
  GlobalDecisionReason,
  RegionCandidate,
} from '../../shared/model/global-decision.ts';
import type { Random } from '../../shared/lib/random.ts';
import { granted } from '../policy/model-grant.ts';
import { draw, mostProbable } from '../policy/pick.ts';
import { regionProbabilities } from '../policy/region-estimate.ts';
import { waitFor } from './core-pause.ts';
import { isInSight } from './core-regions.ts';
import type { GlobalState, RegionPool, RequestState } from './core-state.ts';
import { isTooLong, nearest, weigh, type Place, type Weighing } from './core-weigh.ts';
import type { WaitsFor } from './core-waiting.ts';

export interface Verdict {
  readonly decision: GlobalDecision;
  /** Set when the decision is to send or spill. */
  readonly chosen: Place | null;
  /** Null where the tenant is none of ours or may not use the model. */
  readonly weighing: Weighing | null;
  /** The gate that the request has met, which counts it; null: none. */
  readonly gate: RegionPool | null;
  /** Null: it does not wait. */
  readonly waitsFor: WaitsFor | null;
}

/** Without a draw the most probable region stands for it, and the candidates are shown. */
export function decide(
  state: GlobalState,
  request: RequestState,
  options: { readonly random: Random | null },
): Verdict {
  const tenant = state.tenant(request.request.tenant);
  if (tenant === null) return without('refuse', 'residency');
  if (granted(tenant.models, request.demanded) === null) {
    return without('refuse', 'model_not_allowed');
  }
  const weighing = weigh(state, request, tenant);
  const rules = new Rules(state, request, { weighing, random: options.random });
  return rules.verdict();
}

export function bare(kind: GlobalDecisionKind, reason: GlobalDecisionReason): GlobalDecision {
  return { kind, reason, region: null, pool: null, conversation: null, candidates: [] };
}

function without(kind: GlobalDecisionKind, reason: GlobalDecisionReason): Verdict {
  const decision = bare(kind, reason);
  return { decision, chosen: null, weighing: null, gate: null, waitsFor: null };
}

interface Outcome {
  readonly kind: GlobalDecisionKind;
  readonly reason: GlobalDecisionReason;
  readonly chosen: Place | null;
  readonly gate?: RegionPool;
  readonly waitsFor?: WaitsFor;
}

class Rules {
  readonly #state: GlobalState;
  readonly #request: RequestState;
  readonly #weighing: Weighing;
  readonly #random: Random | null;
  /** Of each place, in their order. */
  #probabilities: readonly number[] = [];

  constructor(
    state: GlobalState,
    request: RequestState,
    seen: { readonly weighing: Weighing; readonly random: Random | null },
  ) {
    this.#state = state;
    this.#request = request;
    this.#weighing = seen.weighing;
    this.#random = seen.random;
  }

  verdict(): Verdict {
    const outcome = this.#outcome();
    const { chosen, kind, reason } = outcome;
    const { conversation } = this.#weighing;
    // Why nobody may serve it is for the log, too.
    const isRefused = kind === 'refuse' || kind === 'shed';
    const shows = isRefused || this.#random === null || this.#request.request.explain === true;
    const decision: GlobalDecision = {
      kind,
      reason,
      region: chosen?.region.id ?? null,
      pool: chosen?.pool.id ?? null,
      conversation: conversation.kind === 'lives' ? conversation.by : conversation.kind,
      candidates: shows ? this.#candidates() : [],
    };
    const { gate = null, waitsFor = null } = outcome;
    return { decision, chosen, weighing: this.#weighing, gate, waitsFor };
  }

  #outcome(): Outcome {
    const { home, conversation, places } = this.#weighing;
    if (home === null) return this.#nothingLeft();
    if (conversation.kind === 'none') return this.#anyOpen(home);
    const lives =
      conversation.kind === 'lives'
        ? places.find(({ region }) => region.id === conversation.dwelling.region)
        : undefined;
    if (lives !== undefined) return this.#stay(lives, 'affinity');
    if (conversation.kind === 'unknown') return this.#stay(home, 'home');
    return this.#begin(home);
  }

  /** Nothing left of the regions: its rules say why, else the last failure, else the filter. */
  #nothingLeft(): Outcome {
    const { removed } = this.#weighing.filtered;
    const reasons = new Set(removed.values());
    const refuse = (reason: GlobalDecisionReason): Outcome => ({
      ...{ kind: 'refuse', reason, chosen: null },
    });
    for (const own of ['residency', 'certification', 'tier']) reasons.delete(own as never);
    if (reasons.size === 0) return refuse('residency');
    if (this.#request.failure !== null) return refuse('attempts_exhausted');
    reasons.delete('rollout');
    if (isTooLong(this.#weighing.filtered)) return refuse('context_length');
    if (reasons.size === 1 && reasons.has('model')) return refuse('unknown_model');
    reasons.delete('model');
    if (reasons.size === 1 && reasons.has('revision')) return refuse('unknown_revision');
    return refuse('no_region');
  }

  /** No cache to go after, and nothing that takes a share of a queue. */
  #anyOpen(home: Place): Outcome {
    const open = nearest(this.#weighing.places.filter((each) => each.pausedUntilMs === null));
    return open === null ? this.#wait(home) : this.#send(open, 'home');
  }

  #begin(home: Place): Outcome {
    const receivers = this.#receivers(home);
    const isOpen = home.pausedUntilMs === null;
    if (receivers.length === 0) return isOpen ? this.#send(home, 'home') : this.#wait(home);
    const gate = home.pool;
    if (!this.#isAdmitted(gate) || (isOpen && home.estimate === null)) {
      return { ...(isOpen ? this.#send(home, 'home') : this.#wait(home)), gate };
    }
    const drawn = this.#draw(isOpen ? [home, ...receivers] : receivers);
    if (drawn === home) return { ...this.#send(home, 'home', true), gate };
    return { kind: 'spill', reason: 'spill_draw', chosen: drawn, gate };
  }

  #stay(place: Place, reason: 'home' | 'affinity'): Outcome {
    const receivers = this.#receivers(place);
    const isOpen = place.pausedUntilMs === null;
    const moves = receivers.filter((other) => !isOpen || this.#isWorthMoving(place, other));
    if (moves.length === 0 || !this.#mayMove()) {
      return isOpen ? this.#send(place, reason) : this.#wait(place);
    }
    const gate = place.pool;
    if (!this.#isAdmitted(gate)) {
      return { ...(isOpen ? this.#send(place, reason) : this.#wait(place)), gate };
    }
    return { kind: 'spill', reason: 'moved', chosen: this.#draw(moves), gate };
  }

  #isAdmitted({ gate }: RegionPool): boolean {
    const { settings, nowMs } = this.#state;
    return gate.wouldAdmit(this.#request.counted, settings, nowMs);
  }

  /** It has not moved for so long, as far as is known. */
  #mayMove(): boolean {
    const { conversation } = this.#weighing;
    if (conversation.kind !== 'lives') return true;
    const { movedMs } = conversation.dwelling;
    return movedMs === null || this.#state.nowMs - movedMs >= this.#state.settings.moveDwellMs;
  }

  /** Staying costs so much more in each of the last two reports, the whole prefill elsewhere included. */
  #isWorthMoving(from: Place, to: Place): boolean {
    const { moveFactor, spillStartMs } = this.#state.settings;
    const staying = extremes(from.pool);
    const moving = extremes(to.pool);
    if (from.estimate === null || to.estimate === null || staying === null || moving === null) {
      return false;
    }
    const { ttftMs: stayMs, queueMs: stayQueueMs } = from.estimate;
    const { ttftMs: moveMs, queueMs: moveQueueMs } = to.estimate;
    const stay = stayMs - stayQueueMs + Math.min(staying.least, stayQueueMs);
    const move = moveMs - moveQueueMs + Math.max(moving.most, moveQueueMs);
    return stay - move >= moveFactor * spillStartMs;
  }

  /** Others that are seen, know what they cost, and have given this router credit that is left. */
  #receivers(from: Place): Place[] {
    const { nowMs } = this.#state;
    return this.#weighing.places.filter((place) => {
      if (place === from || place.pausedUntilMs !== null || place.estimate === null) return false;
      return isInSight(this.#state, place.pool) && place.pool.purse.balanceMs(nowMs) > 0;
    });
  }

  #draw(among: readonly Place[]): Place {
    const { settings } = this.#state;
    const estimates = among.map(({ estimate }) => estimate?.ttftMs ?? 0);
    const probabilities = regionProbabilities(estimates, settings.temperatureMs);
    this.#probabilities = this.#weighing.places.map((place) => {
      const k = among.indexOf(place);
      return k < 0 ? 0 : (probabilities[k] ?? 0);
    });
    const random = this.#random;
    const k = random === null ? mostProbable(probabilities) : draw(probabilities, random);
    return (among[k] ?? among[0]) as Place;
  }

  #send(place: Place, reason: GlobalDecisionReason, wasDrawn = false): Outcome {
    if (!wasDrawn) {
      this.#probabilities = this.#weighing.places.map((each) => Number(each === place));
    }
    const isOnly = this.#weighing.places.length === 1 && reason === 'home';
    const said = this.#request.attempts > 0 ? 'failover' : isOnly ? 'only_region' : reason;
    return { kind: 'send', reason: said, chosen: place };
  }

  /** Until the first of its regions can be asked again, where that is soon enough. */
  #wait(place: Place): Outcome {
    this.#probabilities = [];
    const { nowMs, settings } = this.#state;
    const { arrivedMs, request } = this.#request;
    const againMs = place.pausedUntilMs ?? nowMs;
    const clientMs = arrivedMs + (request.clientDeadlineMs ?? Number.POSITIVE_INFINITY);
    if (againMs > clientMs) return { kind: 'shed', reason: 'deadline_unreachable', chosen: null };
    if (againMs > arrivedMs + settings.queueMaxWaitMs) {
      return { kind: 'shed', reason: 'wait_limit', chosen: null };
    }
    const { promptTokens } = this.#weighing;
    const waitsFor = waitFor(this.#state, this.#request, { place, promptTokens });
    return { kind: 'queue', reason: 'all_paused', chosen: null, waitsFor };
  }

  #candidates(): RegionCandidate[] {
    const { places, filtered, home } = this.#weighing;
    const { nowMs } = this.#state;
    return [...this.#state.regions.values()].map(({ id }) => {
      const k = places.findIndex(({ region }) => region.id === id);
      const place = places[k];
      const removed = filtered.removed.get(id) ?? null;
      if (place === undefined) return { ...BLANK, region: id, removed: removed ?? 'model' };
      const { estimate, cachedTokens, pool, pausedUntilMs } = place;
      return {
        ...{ region: id, removed: pausedUntilMs === null ? null : 'paused' },
        home: place === home,
        networkMs: estimate?.networkMs ?? null,
        queueMs: estimate?.queueMs ?? null,
        prefillMs: estimate?.prefillMs ?? null,
        costMs: estimate?.costMs ?? null,
        ttftMs: estimate?.ttftMs ?? null,
        cachedTokens,
        creditMs: place === home ? null : pool.purse.balanceMs(nowMs),
        drawProbability: this.#probabilities[k] ?? 0,
      };
    });
  }
}

const BLANK = {
  home: false,
  networkMs: null,
  queueMs: null,
  prefillMs: null,
  costMs: null,
  ttftMs: null,
  cachedTokens: null,
  creditMs: null,
  drawProbability: 0,
} as const;

/** Of the last two reports; null where either does not know its queue. */
function extremes({
  lastQueuesMs: [before, last],
}: RegionPool): { least: number; most: number } | null {
  if (before === null || last === null) return null;
  return { least: Math.min(before, last), most: Math.max(before, last) };
}
