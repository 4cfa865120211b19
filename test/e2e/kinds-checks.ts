// What holds beside every kind of engine, whatever words it has for it: answers end well, overload is back-pressure, a
// replica that loads is not ready, a failure before the first token is a failover and one after it an error that nobody
// can take for an end, and nothing is left over.

import { describe, expect, test } from 'vitest';
import type { ReplicaReport } from '../../shared/model/report.ts';
import type { RunningEngine } from '../../sim/engine/http/server.ts';
import {
  direct,
  inside,
  KindRegion,
  prompt,
  replicaOf,
  type Messages,
  type RegionOptions,
  type Told,
} from './kinds-region.ts';
import { until } from './until.ts';

export interface KindCase extends RegionOptions {
  readonly kind: string;
  /** An engine that refuses once so many requests wait in it; null: this kind does not. */
  readonly narrow: RegionOptions['engine'] | null;
  readonly narrowFull: number;
  /** A prompt that it has no room for; absent: it refuses an answer of a million tokens. */
  readonly tooMuch?: { readonly promptTokens: number };
  /** What SIGTERM does to a stream that runs: finished, or broken off. */
  readonly onTerm: 'finishes' | 'breaks';
  /** Figures of the report that this kind cannot tell. */
  readonly unknown: readonly (keyof ReplicaReport)[];
  /** What operators are told that it does not tell, once it has answered. */
  readonly absent: readonly string[];
  /** Figures that it tells once it has answered. */
  readonly known: readonly (keyof ReplicaReport)[];
}

const STREAMED = [false, true];

/** Opens a region, and looks at what is left of it when `body` is done. */
export async function withRegion(
  options: RegionOptions,
  body: (region: KindRegion) => Promise<void>,
): Promise<void> {
  const region = await KindRegion.open(options);
  try {
    await body(region);
    await region.whenCalm();
    expect(await region.figure('spillway_bugs_total')).toBe(0);
    expect(region.lines.filter(({ level }) => level === 'error')).toEqual([]);
  } finally {
    await region.close();
  }
}

export function checkKind(given: KindCase): void {
  const within = (body: (region: KindRegion) => Promise<void>) => () => withRegion(given, body);

  describe.concurrent(`${given.kind} behind the router`, () => {
    test('answers whole and streamed, and what it cannot tell is unknown', within(checkAnswers));

    test(
      'continues a conversation where its cache is',
      within(async (region) => {
        const { replica, next } = await conversation(region, 2_000);
        expect((await region.whole(next)).replica).toBe(replica);
      }),
    );

    test(
      "a request's own fault is told in OpenAI's words, and is no replica's",
      within((region) => checkFault(region, given.tooMuch?.promptTokens ?? null)),
    );

    const { narrow } = given;
    if (narrow !== null) {
      test.each(STREAMED)(
        'a full engine is back-pressure: another answers (streamed: %s)',
        (stream) =>
          withRegion({ ...given, engine: { ...given.engine, ...narrow } }, (region) =>
            checkFull(region, { stream, requests: given.narrowFull }),
          ),
      );
    }

    test('a replica that loads is not ready, and serves when it is', within(checkLoading));

    test.each(STREAMED)('a crash before the first token fails over (streamed: %s)', (stream) =>
      withRegion(given, async (region) => {
        const told = await failover(region, stream, (busy) => void busy.crash({}));
        expect(told).toMatchObject({ finish: 'length', attempts: 2 });
      }),
    );

    test.each(STREAMED)('a core that dies before it fails over (streamed: %s)', (stream) =>
      withRegion(given, async (region) => {
        const told = await failover(region, stream, (busy) => busy.killCore());
        expect(told.finish).toBe('length');
      }),
    );

    test.each([
      ['crash', (busy: RunningEngine) => void busy.crash({})],
      ['death of the core', (busy: RunningEngine) => busy.killCore()],
    ])('a %s in mid-stream is an error, never an end', (_name, act) =>
      withRegion(given, async (region) => {
        const seen = await interrupted(region, act);
        expect(seen).toMatchObject({ finishes: [], error: { code: 'stream_interrupted' } });
      }),
    );

    test(
      'SIGTERM loses no answer that nobody has seen: it ends, or another replica gives it',
      within(async (region) => {
        const asked = region.whole(prompt('unseen'), { max_tokens: 60 });
        const { busy } = await region.whenTaken();
        void busy.terminate();
        const told = await asked;
        expect(told.finish).toBe('length');
        expect(told.attempts).toBe(given.onTerm === 'finishes' ? 1 : 2);
      }),
    );

    test(
      'SIGTERM loses no request: what runs ends or is an error, what comes goes elsewhere',
      within(async (region) => {
        const end = (busy: RunningEngine) => void busy.terminate();
        const seen = await interrupted(region, end, { max_tokens: 60 });
        if (given.onTerm === 'finishes')
          expect(seen).toEqual({ finishes: ['length'], error: null });
        expect(seen.finishes.length).toBe(seen.error === null ? 1 : 0);
        const names = ['one', 'two', 'three', 'four'];
        const answers = await Promise.all(names.map((name) => region.whole(prompt(name))));
        expect(answers.map(({ finish }) => finish)).toEqual(names.map(() => 'length'));
      }),
    );
  });

  async function checkAnswers(region: KindRegion): Promise<void> {
    const usage = { stream_options: { include_usage: true } };
    const stream = await region.streamed(prompt('one'), usage);
    const whole = await region.whole(prompt('two'));
    for (const { text, finish, attempts } of [stream, whole]) {
      expect(text).not.toBe('');
      expect([finish, attempts]).toEqual(['length', 1]);
    }
    const answered = region.engines.find((each) => replicaOf(each) === whole.replica);
    const report = () => (answered === undefined ? null : region.target(answered)?.report);
    const known = () => given.known.every((name) => (report()?.[name] ?? null) !== null);
    // The scrape after the answers tells.
    await until(() => known() && String(report()?.absent) === String(given.absent), {
      says: () => JSON.stringify(report()),
    });
    expect(report()?.engine.kind).toBe(given.kind);
    expect(given.unknown.filter((name) => report()?.[name] !== null)).toEqual([]);
    expect(report()?.models.map(({ id }) => id)).toEqual(['sim-model']);
  }
}

async function checkFault(region: KindRegion, promptTokens: number | null): Promise<void> {
  for (const stream of STREAMED) {
    const limit = promptTokens === null ? { max_tokens: 1_000_000 } : {};
    const asked = ask(region, prompt('long', promptTokens ?? 100), { stream, ...limit });
    const error = await asked.then(
      () => null,
      (fault: unknown) => fault as { status: number; type: string; message: string },
    );
    expect(error?.status).toBeGreaterThanOrEqual(400);
    expect(error?.status).toBeLessThan(500);
    expect(error?.type).toEqual(expect.any(String));
    expect(error?.message).toMatch(/max_(new_)?tokens|token count|context (length|size)/);
  }
  for (const engine of region.engines) expect(region.target(engine)?.breaker).toBe('closed');
}

/** The router prefers the full engine, which holds the conversation, and is refused there. */
async function checkFull(
  region: KindRegion,
  { stream, requests }: { stream: boolean; requests: number },
): Promise<void> {
  const { replica, next } = await conversation(region, 4_000);
  const full = region.engines.find((each) => replicaOf(each) === replica);
  if (full === undefined) throw new Error('no engine answered');
  const leave = await fill(full, requests);
  const asked = ask(region, next, { stream });
  await until(() => (region.target(full)?.pausedForMs ?? 0) > 0);
  const told = await asked;
  expect(told).toMatchObject({ finish: 'length', attempts: 2 });
  expect(told.replica).not.toBe(replica);
  expect(region.target(full)?.breaker).toBe('closed');
  leave.abort();
}

async function checkLoading(region: KindRegion): Promise<void> {
  const late = await region.addEngine({ loadingMs: 1_500, warmUpMs: 700 });
  await until(() => region.target(late) !== undefined);
  await until(() => {
    // Readiness is looked at first: it must not run ahead of the engine.
    const ready = region.target(late)?.phase === 'ready';
    const serving = late.state().phase === 'serving';
    if (!serving) expect(ready).toBe(false);
    return serving;
  });
  await region.whenReady(3);
}

function ask(
  region: KindRegion,
  messages: Messages,
  { stream, ...changes }: { stream: boolean; max_tokens?: number },
): Promise<Told> {
  return stream ? region.streamed(messages, changes) : region.whole(messages, changes);
}

/** A first turn of so many tokens that its agent knows of, and the messages of the next. */
async function conversation(
  region: KindRegion,
  tokens: number,
): Promise<{ replica: string | null; next: Messages }> {
  const first = prompt('conversation', tokens);
  const { text, replica } = await region.streamed(first);
  const engine = region.engines.find((each) => replicaOf(each) === replica);
  await until(() => engine !== undefined && (region.target(engine)?.indexChunks ?? 0) > 0);
  const next: Messages = [
    ...first,
    { role: 'assistant', content: text },
    { role: 'user', content: 'and then?' },
  ];
  return { replica, next };
}

/** Fills an engine past the router with requests that wait for it to go on: to its agent that is a short queue. */
async function fill(engine: RunningEngine, requests: number): Promise<AbortController> {
  engine.freeze();
  const leave = new AbortController();
  for (let at = 1; at <= requests; at += 1) {
    void direct(engine, prompt(`foreign ${at}`, 20), leave.signal);
    await until(() => inside(engine) === at);
  }
  return leave;
}

/** A request whose engine fails before it says anything; answered by the other one. */
export async function failover(
  region: KindRegion,
  stream: boolean,
  act: (busy: RunningEngine) => void,
): Promise<Told> {
  for (const engine of region.engines) engine.freeze();
  const asked = ask(region, prompt('before'), { stream });
  const { busy, other } = await region.whenTaken();
  other.thaw();
  act(busy);
  const told = await asked;
  expect(told.replica).toBe(replicaOf(other));
  return told;
}

/** A stream that is under way when `act` is done to its engine: what its client saw. */
export async function interrupted(
  region: KindRegion,
  act: (busy: RunningEngine) => void,
  changes: object = { max_tokens: 2_000 },
): Promise<{ finishes: string[]; error: unknown }> {
  const finishes: string[] = [];
  let pieces = 0;
  const asked = region.streamed(prompt('under way'), changes, (text, finish) => {
    if (text !== '') pieces += 1;
    if (finish !== null) finishes.push(finish);
  });
  const settled = asked.then(
    () => null,
    (error: unknown) => error,
  );
  await until(() => pieces > 1);
  const { busy } = await region.whenTaken();
  act(busy);
  return { error: await settled, finishes };
}
