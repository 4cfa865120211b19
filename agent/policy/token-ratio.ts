// How long text is in tokens, learned from the usage of finished requests of one target.
//
//   bytesPerToken = promptBytes ÷ (promptTokens − Σ parts·partTokens), mean weighted by tokens, p5 and p95 of
//   the last samples; partTokens[kind] from prompts that hold parts of that kind alone, once the text's ratio
//   is known.

import type { BytesPerToken } from '../../shared/model/report.ts';

const SAMPLES = 256;
/** Shorter prompts are mostly template. */
const MIN_TOKENS = 16;
/** Share of the weight that older samples keep at each new one. */
const KEEP = 0.99;
const PART_SMOOTHING = 0.1;
/** Of kinds: a bound, not a limit that is ever met. */
const MAX_KINDS = 16;

export class TokenRatio {
  private bytes = 0;
  private tokens = 0;
  private readonly samples: number[] = [];
  private nextSample = 0;
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
    this.bytes = this.bytes * KEEP + prompt.bytes;
    this.tokens = this.tokens * KEEP + textTokens;
    this.samples[this.nextSample] = prompt.bytes / textTokens;
    this.nextSample = (this.nextSample + 1) % SAMPLES;
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
  }

  /** Null until learned. */
  get mean(): number | null {
    return this.tokens === 0 ? null : this.bytes / this.tokens;
  }

  /** Null until learned. */
  ratio(): BytesPerToken | null {
    if (this.tokens === 0) return null;
    const sorted = [...this.samples].sort((a, b) => a - b);
    const at = (share: number): number =>
      sorted[Math.round(share * (sorted.length - 1))] ?? this.bytes / this.tokens;
    return { mean: this.bytes / this.tokens, p5: at(0.05), p95: at(0.95) };
  }

  partTokens(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.perPart);
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
