// Prefill cost of an engine in milliseconds, and its sum over several requests.
//
//   ms(u, c) = base·⌈u/stepTokens⌉ + f·(c + u) + b·u + k·u·(c + u/2)
//
// for u uncached tokens after c cached ones: attention reads the whole context (k), the front end
// reads the whole prompt (f), a scheduler step shares its base between the requests in it.

export interface CostCurve {
  /** ms per scheduler step. */
  readonly baseMs: number;
  /** ms per prompt token, cached or not: HTTP, tokenising, block tables. */
  readonly frontMsPerToken: number;
  /** ms per uncached token. */
  readonly linearMsPerToken: number;
  /** ms per uncached token and token of context before it. */
  readonly contextMsPerToken2: number;
  /** Uncached tokens that one scheduler step computes at most. */
  readonly stepTokens: number;
}

/** Sums over requests that are prefilled one after the other: u, c + u, u·(c + u/2). */
export interface PrefillSums {
  uncached: number;
  prompt: number;
  context: number;
}

export function emptySums(): PrefillSums {
  return { uncached: 0, prompt: 0, context: 0 };
}

export function addToSums(sums: PrefillSums, uncached: number, cached: number): void {
  sums.uncached += uncached;
  sums.prompt += cached + uncached;
  sums.context += uncached * (cached + uncached / 2);
}

export function addSums(sums: PrefillSums, more: Readonly<PrefillSums>): void {
  sums.uncached += more.uncached;
  sums.prompt += more.prompt;
  sums.context += more.context;
}

export function subtractSums(sums: PrefillSums, less: Readonly<PrefillSums>): void {
  sums.uncached -= less.uncached;
  sums.prompt -= less.prompt;
  sums.context -= less.context;
}

/** Sums of nothing are nothing: what rounding left is not carried on. */
export function resetSums(sums: PrefillSums): void {
  sums.uncached = 0;
  sums.prompt = 0;
  sums.context = 0;
}

/** Two queues as one, until the next call: it is asked for every target of every decision, and makes no object. */
export function together(one: PrefillSums, other: PrefillSums): Readonly<PrefillSums> {
  TOGETHER.uncached = one.uncached + other.uncached;
  TOGETHER.prompt = one.prompt + other.prompt;
  TOGETHER.context = one.context + other.context;
  return TOGETHER;
}

const TOGETHER = emptySums();

/** ms of prefill for a whole queue: the steps share their base. 0 for nothing. */
export function sumsMs(curve: CostCurve, sums: PrefillSums): number {
  if (sums.prompt <= 0) return 0;
  const steps = Math.max(1, Math.ceil(sums.uncached / curve.stepTokens));
  return (
    curve.baseMs * steps +
    curve.frontMsPerToken * sums.prompt +
    curve.linearMsPerToken * sums.uncached +
    curve.contextMsPerToken2 * sums.context
  );
}

/** ms of prefill for one request of `uncached` tokens after `cached` ones. */
export function prefillMs(curve: CostCurve, uncached: number, cached: number): number {
  const sums = emptySums();
  addToSums(sums, uncached, cached);
  return sumsMs(curve, sums);
}
