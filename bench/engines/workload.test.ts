import { describe, expect, it } from 'vitest';
import { LOADS } from './loads.ts';
import { warmUpOf, workloadOf, type Turn } from './workload.ts';

const [MODERATE, NEAR] = LOADS;

interface Body {
  readonly messages: readonly { readonly role: string; readonly content: string }[];
  readonly stream: boolean;
  readonly max_tokens: number;
  readonly ignore_eos: boolean;
  readonly stream_options: { readonly include_usage: boolean };
}

const bodyOf = (turn: Turn): Body => JSON.parse(turn.body.toString()) as Body;

describe('the workload of a load and a seed', () => {
  const workload = workloadOf(MODERATE!, 3);

  it('is the same whenever it is made', () => {
    expect(workloadOf(MODERATE!, 3)).toEqual(workload);
  });

  it('is another one for another seed, load or warm-up', () => {
    const digests = [
      workload.digest,
      workloadOf(MODERATE!, 4).digest,
      workloadOf(NEAR!, 3).digest,
      warmUpOf('moderate 3').digest,
    ];
    expect(new Set(digests).size).toBe(digests.length);
  });

  it('sends the whole history with each turn, so that each prompt begins with the one before', () => {
    for (const { turns } of workload.talks) {
      const histories = turns.map((turn) => bodyOf(turn).messages);
      for (const [index, messages] of histories.entries()) {
        const before = histories[index - 1] ?? [];
        expect(messages.slice(0, before.length)).toEqual(before);
        expect(messages.at(-1)?.role).toBe('user');
      }
    }
  });

  it('shares nothing between loads, seeds and warm-ups, not even the first words', () => {
    const first = (turn: Turn): string => bodyOf(turn).messages[0]!.content.slice(0, 24);
    const heads = [
      workload,
      workloadOf(MODERATE!, 4),
      workloadOf(NEAR!, 3),
      warmUpOf('moderate 3'),
    ];
    expect(new Set(heads.map(({ talks }) => first(talks[1]!.turns[0]!))).size).toBe(heads.length);
  });

  it('begins half of the conversations with one system prompt, and the others each in its own way', () => {
    const openings = workload.talks.map(({ turns }) => bodyOf(turns[0]!).messages[0]!.content);
    const shared = openings.filter((_, index) => workload.talks[index]!.shared);
    expect(shared.length).toBe(workload.talks.length / 2);
    expect(new Set(shared).size).toBe(1);
    expect(new Set(openings).size).toBe(1 + workload.talks.length / 2);
  });

  it('streams every turn, asks for usage and for an answer of full length', () => {
    for (const turn of workload.talks.flatMap(({ turns }) => turns)) {
      expect(bodyOf(turn)).toMatchObject({
        stream: true,
        ignore_eos: true,
        stream_options: { include_usage: true },
      });
      expect(turn.door).toBeGreaterThanOrEqual(0);
      expect(turn.door).toBeLessThan(1);
    }
  });
});
