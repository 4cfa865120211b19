// Runs the answers of one generation request against a model, whatever protocol they are told in.
//
// One engine request an answer; texts, counts and ends are kept in `choices`. A client that goes away is the
// caller's to notice: it calls `abort`.

import type { SubmitResult } from '../model.ts';
import { tokenSequence } from '../sequence.ts';
import type { FinishReason } from '../stats.ts';
import { tokenText } from '../tokenizer.ts';
import { planAnswer, type AnswerPlan, type AnswerWish } from './answer-plan.ts';
import type { EngineDriver, RequestEvent, Submission } from './driver.ts';

/** What is to be generated. Lengths in tokens. */
export interface GenerationPlan extends AnswerWish {
  /** Unique among the open requests of the process. */
  readonly id: string;
  readonly prompts: readonly Uint32Array[];
  /** Answers per prompt. */
  readonly n: number;
  readonly cacheSalt?: string | undefined;
  /** Name of the adapter. */
  readonly lora?: string | undefined;
  /** Lower is earlier, where the engine schedules by it. */
  readonly priority?: number;
  /** Each of `n` answers is another one. */
  readonly varied?: boolean;
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
  /** The stop string that ended it. */
  stopReason: string | null;
  /** Of the answer so far. */
  readonly tokenIds: number[];
  /** ms of the engine's clock; null before there is one. */
  firstTokenMs: number | null;
  lastTokenMs: number | null;
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
  /** The engine has ended an answer itself, without a token: pause, sleep or shutdown. */
  cut?(choice: Choice, reason: FinishReason): void;
  /** Every answer has ended. */
  ended(): void;
  /** The engine failed; nothing more comes. */
  failed(): void;
}

/** Answers of one request: to each of its prompts as many as `n`. vLLM's bound of `n`, and what is simulated at most. */
export const ANSWERS_MAX = 16_384;

export type SubmitFault = Extract<SubmitResult, { ok: false }>['reason'];

export class GenerationRun {
  readonly plan: GenerationPlan;
  readonly choices: readonly Choice[];
  readonly driver: EngineDriver;
  /** One a choice. */
  readonly engineIds: readonly string[];
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
        stopReason: null,
        tokenIds: [],
        firstTokenMs: null,
        lastTokenMs: null,
      })),
    );
    this.engineIds = this.choices.map(({ index }) => `${plan.id}.${index}`);
  }

  /**
   * Hands all to the engine; when it refuses one, none is left there. The listener hears nothing before this returns, on a
   * machine that is slow at it too: what is sent ahead of the first token can be sent then.
   */
  submit(listener: GenerationListener): SubmitFault | null {
    this.#listener = listener;
    const submissions = this.choices.map((choice) => this.#submissionOf(choice, listener));
    const result = this.driver.submit(submissions);
    if (result.ok) return null;
    this.abort();
    return result.reason;
  }

  /** Nobody waits for the answer any more. */
  abort(): void {
    this.#open = false;
    for (const id of this.engineIds) this.driver.abort(id);
  }

  /** The engine gives it up, and lives on. */
  fail(): void {
    if (!this.#open) return;
    this.abort();
    this.#listener?.failed();
  }

  #submissionOf(choice: Choice, listener: GenerationListener): Submission {
    const { plan, driver } = this;
    const { profile, maxModelLen } = driver.model;
    const prompt = plan.prompts[Math.floor(choice.index / plan.n)];
    const id = this.engineIds[choice.index];
    if (prompt === undefined || id === undefined) throw new Error('a choice has a prompt');
    const bare = tokenSequence(prompt, profile.blockTokens);
    const answer = planAnswer(this.#wishOf(choice), {
      key: bare.promptKey,
      meanTokens: profile.meanAnswerTokens,
      roomTokens: Math.max(1, maxModelLen - prompt.length),
    });
    const { cacheSalt: salt, lora } = plan;
    const identity = { salt, lora, ...(answer.ids === null ? {} : { answerIds: answer.ids }) };
    const isBare = salt === undefined && lora === undefined && answer.ids === null;
    const sequence = isBare ? bare : tokenSequence(prompt, profile.blockTokens, identity);
    const request = {
      id,
      sequence,
      answerTokens: answer.tokens,
      finishReason: answer.finish,
      priority: plan.priority ?? 0,
      ...(plan.maxTokens === null ? {} : { maxTokensParam: plan.maxTokens }),
    };
    return { request, listener: (event) => this.#take(choice, event, { answer, listener }) };
  }

  #wishOf({ index }: Choice): AnswerWish {
    const copy = index % this.plan.n;
    if (this.plan.varied !== true || copy === 0) return this.plan;
    return { ...this.plan, seed: (this.plan.seed ?? 0) + copy };
  }

  #take(
    choice: Choice,
    event: RequestEvent,
    to: { readonly answer: AnswerPlan; readonly listener: GenerationListener },
  ): void {
    if (!this.#open) return;
    if (event.kind === 'failed') {
      this.abort();
      to.listener.failed();
    } else if (event.kind === 'token') {
      this.#takeToken(choice, event, to);
    } else {
      this.#takeEnd(choice, event, to);
    }
  }

  #takeToken(
    choice: Choice,
    event: Extract<RequestEvent, { kind: 'token' }>,
    { answer, listener }: { readonly answer: AnswerPlan; readonly listener: GenerationListener },
  ): void {
    const { index, finish } = event;
    const tokenId = answer.ids?.[index] ?? event.tokenId;
    const text = answer.texts?.[index] ?? tokenText(tokenId);
    choice.cachedTokens = event.cachedTokens;
    choice.text += text;
    choice.tokens += 1;
    choice.tokenIds.push(tokenId);
    choice.firstTokenMs ??= event.atMs;
    choice.lastTokenMs = event.atMs;
    choice.finish = finish;
    if (finish === 'stop') choice.stopReason = answer.stopReason;
    listener.token(choice, { tokenId, text, index, finish });
  }

  #takeEnd(
    choice: Choice,
    { reason, cachedTokens }: Extract<RequestEvent, { kind: 'finished' }>,
    { listener }: { readonly listener: GenerationListener },
  ): void {
    if (choice.finish === null) {
      choice.cachedTokens = cachedTokens;
      choice.finish = reason;
      listener.cut?.(choice, reason);
    }
    if (!this.choices.every(({ finish }) => finish !== null)) return;
    this.#open = false;
    listener.ended();
  }
}
