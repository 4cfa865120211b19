// What a global router asks receivers for: the prefill of those of a hot region's new conversations that it would send
// abroad while the credit lives.
//
//   rate   prefill ms of new conversations that could go abroad, a second, over the last RATE_MEMORY_MS
//   wants  rate · share that the ramp can reach by then · horizon − what it holds already, one request at least
//
// Its own flow alone: other global routers ask for theirs.

const RATE_MEMORY_MS = 10_000;
/** Grants live about so long. */
export const DEMAND_HORIZON_MS = 5_000;

export interface DemandSettings {
  readonly spillRampRatio: number;
  readonly spillIntervalMs: number;
  readonly spillCeilingRatio: number;
}

/** New conversations of one home that might go abroad. */
export class SpillFlow {
  #workMs = 0;
  #requests = 0;
  #countedMs: number | null = null;

  /** One has come, wherever it goes. */
  came(prefillMs: number, nowMs: number): void {
    this.#age(nowMs);
    this.#workMs += prefillMs;
    this.#requests += 1;
  }

  /** Prefill of one of them, ms; null where none came lately. */
  requestMs(nowMs: number): number | null {
    this.#age(nowMs);
    return this.#requests < 0.05 ? null : Math.max(1, this.#workMs / this.#requests);
  }

  /** What would go abroad within the horizon, ms. */
  abroadMs(share: number, settings: DemandSettings, nowMs: number): number {
    const requestMs = this.requestMs(nowMs);
    if (requestMs === null) return 0;
    const ramped = share + (settings.spillRampRatio * DEMAND_HORIZON_MS) / settings.spillIntervalMs;
    const reached = Math.min(settings.spillCeilingRatio, ramped);
    const perMs = this.#workMs / RATE_MEMORY_MS;
    return Math.max(requestMs, perMs * reached * DEMAND_HORIZON_MS);
  }

  #age(nowMs: number): void {
    const passedMs = Math.max(0, nowMs - (this.#countedMs ?? nowMs));
    this.#countedMs = nowMs;
    const kept = Math.exp(-passedMs / RATE_MEMORY_MS);
    this.#workMs *= kept;
    this.#requests *= kept;
  }
}
