// Runs the answers of one generation request against a model, whatever protocol they are told in.
//
// One engine request an answer; texts, counts and ends are kept in `choices`. A client that goes away is the
// caller's to notice: it calls `abort`.

import { answerLength } from '../answers.ts';
import type { SubmitResult } from '../model.ts';
import { tokenSequence } from '../sequence.ts';
import type { FinishReason } from '../stats.ts';
import { detokenize } from '../tokenizer.ts';
import type { EngineDriver, RequestEvent } from './driver.ts';

/** What is to be generated. Lengths in tokens. */
export interface GenerationPlan {
  /** Unique among the open requests of the process. */
  readonly id: string;
  readonly prompts: readonly Uint32Array[];
  /** Answers per prompt. */
  readonly n: number;
  /** Null: until the model stops by itself. */
  readonly maxTokens: number | null;
  readonly cacheSalt?: string | undefined;
}

/** One answer as far as it has come. Lengths in tokens. */
export interface Choice {
  readonly index: number;
  text: string;
  tokens: number;
  /** The first answer of its prompt: a prompt counts once however many answers it gets. */
  readonly first: boolean;
  readonly promptTokens: number;
  cachedTokens: number;
  finish: FinishReason | null;
}

/** One token of a choice, which `choice` includes already. */
export interface TokenPiece {
  readonly tokenId: number;
  readonly text: string;
  /** 0 for the first of the answer. */
  readonly index: number;
  readonly finish: FinishReason | null;
}

export interface GenerationListener {
  token(choice: Choice, piece: TokenPiece): void;
  /** Every answer has ended. */
  ended(): void;
  /** The engine failed; nothing more comes. */
  failed(): void;
}

export type SubmitFault = Extract<SubmitResult, { ok: false }>['reason'];

export class GenerationRun {
  readonly plan: GenerationPlan;
  readonly choices: readonly Choice[];
  readonly driver: EngineDriver;
  readonly #engineIds: readonly string[];
  #listener: GenerationListener | null = null;
  #open = true;

  constructor(driver: EngineDriver, plan: GenerationPlan) {
    this.driver = driver;
    this.plan = plan;
    this.choices = plan.prompts.flatMap((prompt, at) =>
      Array.from({ length: plan.n }, (_, copy): Choice => ({
        index: at * plan.n + copy,
        text: '',
        tokens: 0,
        first: copy === 0,
        promptTokens: prompt.length,
        cachedTokens: 0,
        finish: null,
      })),
    );
    this.#engineIds = this.choices.map(({ index }) => `${plan.id}.${index}`);
  }

  /** Hands all to the engine; when it refuses one, none is left there. */
  submit(listener: GenerationListener): SubmitFault | null {
    const { plan, driver } = this;
    const { profile } = driver.model;
    this.#listener = listener;
    for (const choice of this.choices) {
      const prompt = plan.prompts[Math.floor(choice.index / plan.n)];
      const id = this.#engineIds[choice.index];
      if (prompt === undefined || id === undefined) continue;
      const sequence = tokenSequence(prompt, profile.blockTokens, { salt: plan.cacheSalt });
      const answerTokens =
        plan.maxTokens ?? answerLength(sequence.promptKey, profile.meanAnswerTokens);
      const finishReason = plan.maxTokens === null ? 'stop' : 'length';
      const request = { id, sequence, answerTokens, finishReason } as const;
      const result = driver.submit(request, (event) => this.#take(choice, event, listener));
      if (result.ok) continue;
      this.abort();
      return result.reason;
    }
    return null;
  }

  /** Nobody waits for the answer any more. */
  abort(): void {
    this.#open = false;
    for (const id of this.#engineIds) this.driver.abort(id);
  }

  /** The engine gives it up, and lives on. */
  fail(): void {
    if (!this.#open) return;
    this.abort();
    this.#listener?.failed();
  }

  #take(choice: Choice, event: RequestEvent, listener: GenerationListener): void {
    if (!this.#open) return;
    if (event.kind === 'failed') {
      this.abort();
      listener.failed();
    } else if (event.kind === 'token') {
      const text = detokenize([event.tokenId]);
      choice.cachedTokens = event.cachedTokens;
      choice.text += text;
      choice.tokens += 1;
      choice.finish = event.finish;
      const { tokenId, index, finish } = event;
      listener.token(choice, { tokenId, text, index, finish });
    } else if (this.choices.every(({ finish }) => finish !== null)) {
      this.#open = false;
      listener.ended();
    }
  }
}
