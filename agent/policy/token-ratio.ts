// How long text is in tokens, learned from the usage of finished requests of one target.
//
//   bytesPerToken = promptBytes ÷ (promptTokens − Σ parts·partTokens), mean weighted by tokens, p5 and p95 of
//   the last samples; partTokens[kind] from prompts that hold parts of that kind alone, once the text's ratio
//   is known.
//
// One prompt, however long or strange, moves the mean little: beside a few others it weighs an eighth of them at most,
// and a ratio far outside of what was seen (`FAR` times p95, or p5 over it) counts as that bound. A new language
// is no outlier for long: it moves p5 and p95 within a dozen prompts.

import type { BytesPerToken } from '../../shared/model/report.ts';

const SAMPLES = 256;
/** Shorter prompts are mostly template. */
const MIN_TOKENS = 16;
/** Share of the weight that older samples keep at each new one. */
const KEEP = 0.99;
/** Samples beside which a prompt can be called strange. */
const ENOUGH = 16;
const FAR = 2;
/** Share of the weight of all earlier prompts that one more may have. */
const MOST_SHARE = 1 / 8;
const PART_SMOOTHING = 0.1;
/** Of kinds: a bound, not a limit that is ever met. */
const MAX_KINDS = 16;

export class TokenRatio {
  private bytes = 0;
  private tokens = 0;
  private readonly samples: number[] = [];
  private nextSample = 0;
  private sorted: readonly number[] | null = null;
  private readonly perPart = new Map<string, number>();

  /** One finished prompt: canonical bytes without parts, parts by kind, exact tokens. */
  observe(prompt: {
    readonly bytes: number;
    readonly parts: Readonly<Record<string, number>>;
    readonly tokens: number;
  }): void {
    const kinds = Object.entries(prompt.parts).filter(([, count]) => count > 0);
    if (prompt.bytes <= 0 || prompt.tokens < MIN_TOKENS) return;
    const [only] = kinds;
    if (kinds.length === 1 && only !== undefined) this.observePart(only, prompt);
    let textTokens = prompt.tokens;
    for (const [kind, count] of kinds) {
      const each = this.perPart.get(kind);
      if (each === undefined) return;
      textTokens -= each * count;
    }
    if (textTokens < MIN_TOKENS) return;
    const sample = prompt.bytes / textTokens;
    this.weigh(sample, textTokens);
    this.samples[this.nextSample] = sample;
    this.nextSample = (this.nextSample + 1) % SAMPLES;
    this.sorted = null;
  }

  /** Takes over what an earlier agent process had learned, as if it were a few samples. */
  adopt(ratio: BytesPerToken | null, partTokens: Readonly<Record<string, number>>): void {
    for (const [kind, tokens] of Object.entries(partTokens)) this.setPart(kind, tokens);
    if (ratio === null || this.tokens > 0) return;
    this.tokens = 10_000;
    this.bytes = this.tokens * ratio.mean;
    const spread = [ratio.p5, ratio.mean, ratio.mean, ratio.mean, ratio.p95];
    for (const sample of spread) this.samples.push(sample);
    this.nextSample = this.samples.length % SAMPLES;
    this.sorted = null;
  }

  /** Null until learned. */
  get mean(): number | null {
    return this.tokens === 0 ? null : this.bytes / this.tokens;
  }

  /** Null until learned. */
  ratio(): BytesPerToken | null {
    if (this.tokens === 0) return null;
    return { mean: this.bytes / this.tokens, p5: this.quantile(0.05), p95: this.quantile(0.95) };
  }

  partTokens(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.perPart);
  }

  private weigh(sample: number, tokens: number): void {
    let ratio = sample;
    let weight = tokens;
    if (this.samples.length >= ENOUGH) {
      ratio = Math.min(this.quantile(0.95) * FAR, Math.max(this.quantile(0.05) / FAR, sample));
      weight = Math.min(tokens, this.tokens * MOST_SHARE);
    }
    this.bytes = this.bytes * KEEP + ratio * weight;
    this.tokens = this.tokens * KEEP + weight;
  }

  private quantile(share: number): number {
    this.sorted ??= this.samples.toSorted((a, b) => a - b);
    const { sorted } = this;
    return sorted[Math.round(share * (sorted.length - 1))] ?? this.bytes / this.tokens;
  }

  private observePart(
    [kind, count]: [string, number],
    prompt: { readonly bytes: number; readonly tokens: number },
  ): void {
    if (this.tokens === 0) return;
    const textTokens = (prompt.bytes * this.tokens) / this.bytes;
    const each = (prompt.tokens - textTokens) / count;
    if (!(each > 0)) return;
    const old = this.perPart.get(kind);
    this.setPart(kind, old === undefined ? each : old + PART_SMOOTHING * (each - old));
  }

  private setPart(kind: string, tokens: number): void {
    if (this.perPart.has(kind) || this.perPart.size < MAX_KINDS) this.perPart.set(kind, tokens);
  }
}
