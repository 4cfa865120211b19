// What an agent's deltas leave in a router's index, whole and cut in parts at every place.

import { expect, test } from 'vitest';
import { deltaParts, partsOf } from '../../agent/policy/prefix-parts.ts';
import { PrefixIndex as AgentIndex, type PrefixDelta } from '../../agent/policy/prefix-index.ts';
import { PrefixIndex as RouterIndex } from '../../router/policy/prefix-index.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import type { Incarnation, ReplicaId } from '../../shared/model/ids.ts';
import { CHUNK_BYTES, type PromptChain } from '../../shared/model/prompt.ts';
import { DELTA_PARTS_MAX } from '../../shared/protocol/limits.ts';

const BYTES_PER_TOKEN = 4;
const INDEX_BYTES = 1 << 20;
const STEPS = 30;

const random = seededRandom(5);
const word = (): number => Math.floor(random.next() * 2 ** 32);

interface Turn {
  readonly hashes: Uint32Array;
  readonly end: { readonly low: number; readonly high: number };
}

function turnAfter({ hashes }: Pick<Turn, 'hashes'>, chunks: number): Turn {
  const more = Uint32Array.from({ length: 2 * chunks }, word);
  return { hashes: Uint32Array.from([...hashes, ...more]), end: { low: word(), high: word() } };
}

/** Conversations that go on, fork and are evicted; what their agent tells of each step. */
function history(): { turns: Turn[]; deltas: PrefixDelta[] } {
  const agent = new AgentIndex();
  const turns: Turn[] = [turnAfter({ hashes: new Uint32Array(0) }, 5)];
  const deltas: PrefixDelta[] = [agent.snapshot()];
  for (let step = 0; step < STEPS; step += 1) {
    const from = turns[Math.floor(random.next() * turns.length)] as Turn;
    const turn = turnAfter(from, 1 + Math.floor(random.next() * 12));
    turns.push(turn);
    const chain = {
      ...{ hashes: turn.hashes, turnEnds: new Uint32Array(0) },
      ...{ endLow: turn.end.low, endHigh: turn.end.high },
    };
    const { hold } = agent.open(chain, step);
    agent.confirm(hold);
    agent.complete(hold, { promptTokens: 100, answerTokens: step, tailTokens: 3 }, step);
    agent.release(hold);
    agent.evict((60 * CHUNK_BYTES) / BYTES_PER_TOKEN, BYTES_PER_TOKEN);
    const delta = agent.drain();
    if (delta !== null) deltas.push(delta);
  }
  return { turns, deltas };
}

function chainOf({ hashes, end }: Turn): PromptChain {
  const chunks = hashes.length / 2;
  const at = { offset: chunks * CHUNK_BYTES, chunks, hashLow: end.low, hashHigh: end.high };
  return {
    ...{ keySpace: 'text/1', bytes: chunks * CHUNK_BYTES, hashes, turnEnds: [at], end: at },
    ...{ parts: {}, tokenIds: null },
  };
}

/** What a router finds of each turn once it has heard all of it, and what it would tell an agent. */
function heard(deltas: readonly PrefixDelta[], turns: readonly Turn[]): unknown {
  const index = new RouterIndex(INDEX_BYTES);
  const slot = index.addTarget();
  for (const [seq, delta] of deltas.entries()) {
    const message = { kind: 'prefix', replica: 'r' as ReplicaId, rank: 0, seq, ...delta } as const;
    expect(index.apply(slot, { ...message, incarnation: 'i' as Incarnation })).toBe('applied');
  }
  const { runs, leaves } = index.snapshot(slot);
  const chunks = runs.flatMap((run) =>
    Array.from({ length: run.hashes.length / 2 }, (_, k) => [
      ...[run.depth + k, run.hashes[2 * k], run.hashes[2 * k + 1]],
      ...(k === 0 ? [run.parentLow, run.parentHigh] : [...run.hashes.slice(2 * k - 2, 2 * k)]),
    ]).map(String),
  );
  return {
    found: turns.map((turn) => index.match(slot, chainOf(turn))),
    held: index.chunks(slot),
    chunks: chunks.toSorted(),
    leaves: leaves.map((leaf) => JSON.stringify(leaf)).toSorted(),
  };
}

test('a delta that comes in parts leaves the same in a router’s index, wherever it is cut', () => {
  const { turns, deltas } = history();
  const whole = heard(deltas, turns);
  expect(deltas.some(({ evicted }) => evicted.length > 2)).toBe(true);
  for (let most = 1; most <= 24; most += 1) {
    const parts = deltas.flatMap((delta) => partsOf(delta, most));
    expect(parts.length).toBeGreaterThan(deltas.length);
    expect(heard(parts, turns)).toEqual(whole);
  }
});

test('a delta has few parts, however long it is', () => {
  for (const chunks of [1, 1_024, 1_025, 40_000, 200_000]) {
    const hashes = Uint32Array.from({ length: 2 * chunks }, word);
    const evicted = Uint32Array.from({ length: chunks }, word);
    const runs = [{ parentLow: 0, parentHigh: 0, depth: 0, hashes }];
    const parts = deltaParts({ runs, leaves: [], evicted });
    expect(parts.length).toBeLessThanOrEqual(DELTA_PARTS_MAX);
    expect(parts.length).toBe(Math.min(DELTA_PARTS_MAX, Math.ceil((1.5 * chunks) / 1_024)));
  }
});
