// Replays recorded requests through one target of an agent: calibration, then the ledger messages that a router
// would have sent, in the recorded order of time, with what the agent predicted one step ahead.
//
// A request's own prefill is measured from the later of its sending and the first token before it, as engines
// serve in the order of sending; the prediction is the curve's at that very moment, nothing of the request known but
// its tokens.

import type { CoreContext } from './core-context.ts';
import { TargetState } from './core-target.ts';
import { leaseFacts, REPLICA } from './core.harness.ts';
import { seededRandom } from '../shared/lib/random.ts';
import { prefillMs } from '../shared/model/cost-curve.ts';
import type { LeaseId, LinkId, RouterId } from '../shared/model/ids.ts';
import { AGENT_DEFAULTS } from '../shared/model/settings.ts';
import type { AgentSettings } from '../shared/model/settings.ts';

/** One recorded request; times in ms. */
export interface RecordedRequest {
  readonly sentMs: number;
  /** Null where the answer came in one piece. */
  readonly ttftMs: number | null;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** From sending to the end of the answer. */
  readonly e2eMs: number;
}

export interface Foretold {
  readonly uncached: number;
  readonly cached: number;
  readonly predictedMs: number;
  readonly measuredMs: number;
}

const FROM = { link: 'l' as LinkId, order: 1, router: 'r' as RouterId };

export class Replay {
  readonly target: TargetState;
  private seq = 0;
  private nowMs = 0;

  constructor(settings: Partial<AgentSettings> = {}) {
    const context: CoreContext = {
      settings: { ...AGENT_DEFAULTS, ...settings },
      random: seededRandom(1),
      emit: () => undefined,
      log: () => undefined,
      unique: () => 'u',
    };
    this.target = new TargetState(context, REPLICA, 0);
    const to = { replica: REPLICA, rank: 0 };
    this.target.message(FROM, { kind: 'leases', ...to, seq: 0, open: [] }, 0);
  }

  /** Lone prefills on the idle engine, as warm-up would have measured them. */
  calibrate(measured: readonly RecordedRequest[]): void {
    for (const { ttftMs, promptTokens, cachedTokens } of measured) {
      const tokens = { uncached: promptTokens - cachedTokens, cached: cachedTokens };
      if (ttftMs !== null) this.target.calibrated(ttftMs, tokens);
    }
    this.target.calibrationEnded();
  }

  /** What was foretold of each request, in the order of their first tokens. */
  run(requests: readonly RecordedRequest[]): Foretold[] {
    const told: Foretold[] = [];
    let lastFirstTokenMs = -Infinity;
    const steps = requests.flatMap((request, at) => [
      { atMs: request.sentMs, step: 0, at, request },
      ...(request.ttftMs === null
        ? []
        : [{ atMs: request.sentMs + request.ttftMs, step: 1, at, request }]),
      { atMs: request.sentMs + request.e2eMs, step: 2, at, request },
    ]);
    steps.sort((a, b) => a.atMs - b.atMs || a.step - b.step || a.at - b.at);
    const predicted = new Map<number, number>();
    const next = (): void => {
      const waiting = this.target.backlog.firstStream();
      if (waiting === null) return;
      const at = Number(waiting.lease);
      if (!predicted.has(at)) predicted.set(at, this.predictMs(requests[at]!));
    };
    for (const { atMs, step, at, request } of steps) {
      this.until(atMs);
      if (step === 0) this.sent(at, request);
      if (step === 2) this.ended(at, request);
      if (step === 1) {
        const measuredMs = atMs - Math.max(request.sentMs, lastFirstTokenMs);
        lastFirstTokenMs = atMs;
        const predictedMs = predicted.get(at);
        const uncached = request.promptTokens - request.cachedTokens;
        if (predictedMs !== undefined)
          told.push({ uncached, cached: request.cachedTokens, predictedMs, measuredMs });
        this.firstToken(at);
      }
      next();
    }
    this.until(this.nowMs + 1_000);
    return told;
  }

  private predictMs(request: RecordedRequest): number {
    const { promptTokens, cachedTokens } = request;
    return prefillMs(this.target.cost.curve(), promptTokens - cachedTokens, cachedTokens);
  }

  private until(atMs: number): void {
    for (;;) {
      const wakeMs = Math.max(this.nowMs, this.target.nextWakeMs() ?? Infinity);
      if (wakeMs >= atMs) break;
      this.nowMs = wakeMs;
      this.target.run(wakeMs);
    }
    this.nowMs = atMs;
    this.target.run(atMs);
  }

  private sent(at: number, request: RecordedRequest): void {
    const { promptTokens, cachedTokens } = request;
    const facts = leaseFacts(String(at), {
      promptTokens,
      uncachedTokens: promptTokens - cachedTokens,
      promptBytes: 4 * promptTokens,
      streamed: request.ttftMs !== null,
    });
    this.say({ kind: 'sent', agoMs: 0, ...facts });
  }

  private firstToken(at: number): void {
    this.say({ kind: 'firstToken', lease: String(at) as LeaseId, agoMs: 0 });
  }

  private ended(at: number, { promptTokens, cachedTokens }: RecordedRequest): void {
    const usage = { promptTokens, cachedTokens, completionTokens: 24 };
    const lease = String(at) as LeaseId;
    this.say({ kind: 'ended', lease, agoMs: 0, outcome: 'complete', usage });
  }

  private say(message: Record<string, unknown>): void {
    this.seq += 1;
    const whole = { replica: REPLICA, rank: 0, seq: this.seq, ...message };
    this.target.message(FROM, whole as never, this.nowMs);
  }
}
