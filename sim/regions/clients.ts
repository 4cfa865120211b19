// Clients of a world of regions: conversations that begin at a rate that changes with time, and go on for some turns, each
// turn by way of any of the global routers.

import type { RegionId, RequestId } from '../../shared/model/ids.ts';
import type { PromptChain, TurnEnd } from '../../shared/model/prompt.ts';
import type { Random } from '../../shared/lib/random.ts';
import type { RouteRequest } from '../../router/policy/request-events.ts';
import type { RequestEnd } from './global-host.ts';
import { MODEL, type RegionsWorld } from './world.ts';

const BYTES_PER_TOKEN = 4;

export interface ClientLoad {
  readonly tenant: string;
  /** Conversations that begin, a second, at an instant. */
  readonly perS: (atMs: number) => number;
  /** Of a first prompt; later turns add `turnTokens` each. */
  readonly firstTokens: number;
  readonly turnTokens: number;
  readonly answerTokens: number;
  /** That a conversation goes on after a turn. */
  readonly goesOn: number;
  readonly thinkMs: number;
  readonly maxTurns: number;
}

export interface ClientFigures {
  conversations: number;
  /** Turns after the first that were answered, and those of them where the turn before had been. */
  laterTurns: number;
  inPlace: number;
  answered: number;
  refused: Map<string, number>;
  ttftMs: number[];
}

export class Clients {
  readonly figures: ClientFigures = {
    ...{ conversations: 0, laterTurns: 0, inPlace: 0, answered: 0 },
    ...{ refused: new Map<string, number>(), ttftMs: [] },
  };
  readonly #world: RegionsWorld;
  readonly #load: ClientLoad;
  readonly #random: Random;
  readonly #name: string;
  readonly #firstId: number;
  #requests = 0;

  /** `firstId`: conversations are numbered from here, apart from those of other clients. */
  constructor(world: RegionsWorld, load: ClientLoad, parts: { name: string; firstId: number }) {
    this.#world = world;
    this.#load = load;
    this.#random = world.random;
    this.#name = parts.name;
    this.#firstId = parts.firstId;
    this.#next();
  }

  /** Poisson, thinned: looked at ten times as often as the present rate at least. */
  #next(): void {
    const { timeline } = this.#world;
    const perMs = Math.max(1e-6, this.#load.perS(timeline.nowMs) / 1_000);
    const gapMs = Math.min(1_000, -Math.log(1 - this.#random.next()) / perMs);
    const isReal = gapMs < 1_000;
    timeline.after(gapMs, () => {
      if (isReal) this.#begin();
      this.#next();
    });
  }

  #begin(): void {
    this.figures.conversations += 1;
    const id = this.#firstId + this.figures.conversations;
    // From half of it to one and a half.
    const tokens = Math.round(this.#load.firstTokens * (0.5 + this.#random.next()));
    this.#turn({ id, sizes: [tokens], region: null });
  }

  #turn(at: { id: number; sizes: readonly number[]; region: RegionId | null }): void {
    const { timeline, globals } = this.#world;
    const host = globals[Math.floor(this.#random.next() * globals.length)];
    const askedMs = timeline.nowMs;
    this.#requests += 1;
    const promptTokens = at.sizes.at(-1) ?? 1;
    host?.ask({
      route: this.#route(at.id, at.sizes),
      ...{ conversation: at.id, promptTokens, answerTokens: this.#load.answerTokens },
      ended: (end) => this.#ended(at, end, timeline.nowMs - askedMs),
    });
  }

  #ended(
    { id, sizes, region }: { id: number; sizes: readonly number[]; region: RegionId | null },
    end: RequestEnd,
    ttftMs: number,
  ): void {
    const { figures } = this;
    if (end.kind === 'refused') {
      figures.refused.set(end.code ?? '', (figures.refused.get(end.code ?? '') ?? 0) + 1);
      return;
    }
    figures.answered += 1;
    figures.ttftMs.push(ttftMs);
    if (region !== null) {
      figures.laterTurns += 1;
      if (region === end.region) figures.inPlace += 1;
    }
    const { goesOn, thinkMs, maxTurns, turnTokens } = this.#load;
    if (sizes.length >= maxTurns || this.#random.next() >= goesOn) return;
    const waitMs = thinkMs * (0.5 + this.#random.next());
    const next = (sizes.at(-1) ?? 0) + turnTokens;
    this.#world.timeline.after(waitMs, () =>
      this.#turn({ id, sizes: [...sizes, next], region: end.region }),
    );
  }

  #route(conversation: number, sizes: readonly number[]): RouteRequest {
    return {
      id: `${this.#name}${this.#requests}` as RequestId,
      tenant: this.#load.tenant,
      model: MODEL,
      stream: true,
      priority: 0,
      maxTokens: this.#load.answerTokens,
      clientDeadlineMs: null,
      bodyBytes: (sizes.at(-1) ?? 0) * BYTES_PER_TOKEN,
      prompts: [chainOf(conversation, sizes)],
    };
  }
}

function chainOf(conversation: number, sizes: readonly number[]): PromptChain {
  const ends = sizes.map((tokens): TurnEnd => {
    const offset = tokens * BYTES_PER_TOKEN;
    return { offset, chunks: Math.floor(offset / 512), hashLow: conversation, hashHigh: 0 };
  });
  const end = ends.at(-1) as TurnEnd;
  return {
    ...{ keySpace: 'text/1', bytes: end.offset, hashes: new Uint32Array(0) },
    ...{ turnEnds: ends.slice(0, -1), end, parts: {}, tokenIds: null },
  };
}
