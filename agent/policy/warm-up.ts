// From the first answer of an engine to `ready`: one generation that succeeds, then calibration.
//
// Calibration measures lone prefills of u uncached tokens after c cached ones, u in {256, 2k, 8k} and c in
// {0, prefix}, the prefix being the largest of these sizes that leaves room, as far as context, KV capacity
// and the token budget allow. The first real shapes of a process pay for compilation: so each size goes once unmeasured
// before, and then the smallest again until it takes as long as the last time. What a pooling model has cached is not
// told, and most cache nothing: there c is 0. The engine has to be idle; one that
// never is goes without after `idleWaitMs`.

import { extendedText, TOKENS_PER_WORD, uniqueText } from './probe-prompt.ts';

const SIZES = [256, 2_048, 8_192] as const;
const SMALLEST = SIZES[0];
/** Two times of the smallest size this near to each other: its kernels are warm. */
const STEADY = 1.5;
/** A process that is never steady is measured as it is. */
const MAX_SETTLING = 4;
const FIRST_TOKENS = 16;
/** Assumed where neither context length nor KV capacity is known, tokens. */
const UNKNOWN_LIMIT = 4_096;
/** Tokens that the template and the answer may add. */
const MARGIN = 128;

export interface WarmUpSettings {
  readonly calibration: boolean;
  readonly budgetTokens: number;
  readonly idleWaitMs: number;
  readonly retryMs: number;
}

export const WARM_UP_DEFAULTS = { idleWaitMs: 30_000, retryMs: 1_000 } as const;

export interface WarmUpStep {
  readonly purpose: 'probe' | 'calibration';
  readonly prompt: string;
  readonly maxTokens: number;
  /** Expected tokens. */
  readonly uncached: number;
  readonly cached: number;
  /** Whether its time says something about the cost curve. */
  readonly measured: boolean;
}

interface Plan {
  readonly uncached: number;
  readonly cached: number;
  readonly measured: boolean;
}

export class WarmUp {
  private readonly settings: WarmUpSettings;
  private readonly nonce: () => string;
  private plan: Plan[] | null = null;
  private generated = false;
  private current: WarmUpStep | null = null;
  private prefix: string | null = null;
  private prefixTokens = 0;
  private tokensPerWord = TOKENS_PER_WORD;
  private notBeforeMs = -Infinity;
  private waitsSinceMs: number | null = null;
  private total = 0;
  private startedMs = 0;
  private lastSmallMs: number | null = null;
  private settling = 0;
  private leftTokens = 0;
  private prefixes = true;

  constructor(settings: WarmUpSettings, nonce: () => string) {
    this.settings = settings;
    this.nonce = nonce;
  }

  get inFlight(): boolean {
    return this.current !== null;
  }

  /** A first generation has succeeded and nothing is left to measure. */
  get done(): boolean {
    return this.generated && this.plan !== null && this.plan.length === 0 && this.current === null;
  }

  /** Steps still to come of all, the first generation included; for the ETA. */
  get remaining(): { readonly steps: number; readonly of: number } {
    const steps = (this.plan?.length ?? 0) + (this.current === null ? 0 : 1);
    return { steps, of: this.total };
  }

  /** Nobody tells what this engine had cached: nothing is measured after a prefix. */
  withoutPrefixes(): void {
    this.prefixes = false;
  }

  /** What to send now; null when something has to be waited for. */
  next(
    state: { readonly idle: boolean; readonly limitTokens: number | null },
    nowMs: number,
  ): WarmUpStep | null {
    if (this.current !== null || nowMs < this.notBeforeMs) return null;
    if (!this.generated) return this.begin(this.firstStep(), nowMs);
    this.plan ??= this.planFor(state.limitTokens ?? UNKNOWN_LIMIT);
    const planned = this.plan[0];
    if (planned === undefined) return null;
    if (!state.idle) {
      this.waitsSinceMs ??= nowMs;
      if (nowMs - this.waitsSinceMs >= this.settings.idleWaitMs) this.plan = [];
      return null;
    }
    this.waitsSinceMs = null;
    this.plan.shift();
    return this.begin(this.stepOf(planned), nowMs);
  }

  /** The step in flight has ended. A calibration step that fails ends calibration: a generation must prove
   * the engine again. */
  ended(ok: boolean, promptTokens: number | null, nowMs: number): void {
    const step = this.current;
    this.current = null;
    if (step === null) return;
    if (!ok) {
      this.generated = false;
      if (step.purpose === 'calibration') this.plan = [];
      this.notBeforeMs = nowMs + this.settings.retryMs;
      return;
    }
    this.generated = true;
    const words = step.prompt.split(' ').length;
    if (promptTokens !== null && promptTokens > 0) this.tokensPerWord = promptTokens / words;
    const small = step.purpose === 'calibration' && step.uncached === SMALLEST;
    if (small && !step.measured) this.settle(nowMs - this.startedMs);
  }

  nextWakeMs(nowMs: number): number | null {
    if (this.current !== null || this.done) return null;
    if (this.notBeforeMs > nowMs) return this.notBeforeMs;
    return this.waitsSinceMs === null ? null : this.waitsSinceMs + this.settings.idleWaitMs;
  }

  /** The smallest size took `tookMs`, unmeasured: again, unless as long as the time before. */
  private settle(tookMs: number): void {
    const before = this.lastSmallMs;
    this.lastSmallMs = tookMs;
    if (this.plan === null || this.plan.some((step) => !step.measured)) return;
    const [least, most] =
      before === null ? [0, 1] : [Math.min(before, tookMs), Math.max(before, tookMs)];
    if (most <= STEADY * least || this.settling >= MAX_SETTLING) return;
    if (this.plan.length === 0 || this.leftTokens < SMALLEST) return;
    this.settling += 1;
    this.total += 1;
    this.leftTokens -= SMALLEST;
    this.plan.unshift({ uncached: SMALLEST, cached: 0, measured: false });
  }

  private begin(step: WarmUpStep, nowMs: number): WarmUpStep {
    this.current = step;
    this.startedMs = nowMs;
    return step;
  }

  private firstStep(): WarmUpStep {
    const prompt = uniqueText(this.nonce(), this.wordsFor(FIRST_TOKENS));
    const tokens = { uncached: FIRST_TOKENS, cached: 0 };
    return { purpose: 'probe', prompt, maxTokens: 4, ...tokens, measured: false };
  }

  private stepOf(planned: Plan): WarmUpStep {
    const words = this.wordsFor(planned.uncached);
    const extends_ = planned.cached > 0 && this.prefix !== null;
    const prompt = extends_
      ? extendedText(this.prefix ?? '', this.nonce(), words)
      : uniqueText(this.nonce(), words);
    if (planned.measured && planned.uncached === this.prefixTokens && !extends_)
      this.prefix = prompt;
    return { purpose: 'calibration', prompt, maxTokens: 1, ...planned };
  }

  private wordsFor(tokens: number): number {
    return Math.max(4, Math.round(tokens / this.tokensPerWord));
  }

  private planFor(limitTokens: number): Plan[] {
    if (!this.settings.calibration) return [];
    const limit = limitTokens - MARGIN;
    const sizes = affordable(
      SIZES.filter((size) => size <= limit),
      this.settings.budgetTokens,
    );
    if (sizes.length === 0) return [];
    this.prefixTokens = sizes.findLast((size) => size + SMALLEST <= limit) ?? 0;
    const plan: Plan[] = sizes.map((uncached) => ({ uncached, cached: 0, measured: false }));
    plan.push({ uncached: SMALLEST, cached: 0, measured: false });
    for (const uncached of sizes) plan.push({ uncached, cached: 0, measured: true });
    let left = this.settings.budgetTokens - costOf(plan);
    for (const uncached of sizes) {
      const fits =
        this.prefixes && this.prefixTokens > SMALLEST && this.prefixTokens + uncached <= limit;
      if (!fits || uncached > left) continue;
      left -= uncached;
      plan.push({ uncached, cached: this.prefixTokens, measured: true });
    }
    this.leftTokens = left;
    this.total = plan.length + 1;
    return plan;
  }
}

/** As many sizes, the smallest first, as can go twice within the budget, and the smallest once more. */
function affordable(sizes: readonly number[], budgetTokens: number): readonly number[] {
  let left = budgetTokens - SMALLEST;
  const chosen: number[] = [];
  for (const size of sizes) {
    left -= 2 * size;
    if (left < 0) break;
    chosen.push(size);
  }
  return chosen;
}

function costOf(plan: readonly Plan[]): number {
  return plan.reduce((sum, step) => sum + step.uncached, 0);
}
