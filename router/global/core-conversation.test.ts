import { describe, expect, test } from 'vitest';
import { PlacementHints, type Placement } from '../../shared/lib/placement-hint.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import { PACE_MAX } from '../policy/turn-pace.ts';
import {
  asia,
  attemptIn,
  COMPLETE,
  decisionIn,
  type GlobalRig,
  kindOf,
  RIG_HINTS,
  RESET,
  RIG_WALL_MS,
  tenantOf,
  turnsOf,
} from './core.harness.ts';

const ID = 'chat-1';
/** Of nobody's conversation before. */
let fresh = 100;
const unseen = () => [turnsOf((fresh += 1), 1)];

/** Singapore says that it serves something away from home. */
function away(rig: GlobalRig, key: string, region = 'sg'): void {
  const here = [{ key, tokens: 2_000, idleMs: 0, awayForMs: 5_000 }];
  rig.say(region, { kind: 'away', snapshot: false, here, gone: [] });
}

function usage(cachedTokens: number | null) {
  const tokens = { promptTokens: 1_000, cachedTokens, completionTokens: 10 };
  return { kind: 'complete', usage: tokens } as const;
}

/** A turn of a conversation whose text nobody knows. */
function turn(rig: GlobalRig, { cached }: { readonly cached: number | null }) {
  const attempt = attemptIn(rig.arrive({ conversationId: ID, prompts: unseen() }));
  rig.end(attempt.lease, usage(cached));
  return attempt;
}

const known = (effects: ReturnType<GlobalRig['arrive']>) => decisionIn(effects)?.conversation;

describe('an id', () => {
  test('keeps a conversation in place whose text is another one each time', () => {
    const rig = asia();
    turn(rig, { cached: 0 });
    turn(rig, { cached: 900 });
    rig.handle({ kind: 'rtt', region: 'sg' as RegionId, rttMs: 5 });
    expect(attemptIn(rig.arrive({ prompts: unseen() })).region).toBe('sg');
    const next = rig.arrive({ conversationId: ID, prompts: unseen() });
    expect(kindOf(next)).toEqual(['send', 'affinity', 'jp']);
    expect(known(next)).toBe('id');
    expect(attemptIn(next)).toMatchObject({
      ...{ away: true, predictedCachedTokens: 999, byId: 't/m#chat-1' },
    });
  });

  test('counts as long as answers under it find most of its history in the cache', () => {
    const rig = asia();
    const told = [0, 900, 900, 100, 900].map((cached) => turn(rig, { cached }).byId !== null);
    expect(told).toEqual([false, false, true, true, false]);
    expect(turn(rig, { cached: null }).byId).not.toBeNull();
    expect(turn(rig, { cached: 0 }).byId).not.toBeNull();
    rig.handle({ kind: 'rtt', region: 'sg' as RegionId, rttMs: 5 });
    // What shares an id and nothing else is new each time.
    expect(kindOf(rig.arrive({ conversationId: ID, prompts: unseen() }))).toEqual([
      ...['send', 'home', 'sg'],
    ]);
  });

  test('proves itself also in turns that their text finds', () => {
    const rig = asia();
    for (const [turns, cached] of [[1, 0] as const, [2, 900] as const]) {
      const prompts = [turnsOf(7, turns)];
      rig.end(attemptIn(rig.arrive({ conversationId: ID, prompts })).lease, usage(cached));
    }
    expect(known(rig.arrive({ conversationId: ID, prompts: unseen() }))).toBe('id');
  });

  test('that has not proved itself follows nothing abroad', () => {
    const rig = asia();
    const failed = attemptIn(rig.arrive({ conversationId: ID, prompts: unseen() }));
    const abroad = attemptIn(rig.end(failed.lease, RESET));
    expect(abroad).toMatchObject({ region: 'sg', away: true, byId: null });
    rig.end(abroad.lease, usage(null));
    const next = rig.arrive({ conversationId: ID, prompts: unseen() });
    expect(kindOf(next)).toEqual(['send', 'home', 'jp']);
  });

  test('is known of by a router that never saw it, where a region tells it', () => {
    const rig = asia();
    away(rig, 't/m#chat-1');
    const effects = rig.arrive({ conversationId: ID, prompts: [turnsOf(7, 3)] });
    expect(kindOf(effects)).toEqual(['send', 'affinity', 'sg']);
    expect(attemptIn(effects)).toMatchObject({ away: true, awayForMs: 5_000 });
  });

  test('of another tenant or another model is another one', () => {
    const rig = asia({ tenants: { t: tenantOf(null), u: tenantOf(null) } });
    rig.report('jp', {
      models: ['m', 'n'].map((name) => ({ name, revision: 'unknown', maxModelLen: null })),
    });
    away(rig, 't/m#chat-1');
    const ask = (tenant: string, model = 'm') =>
      attemptIn(rig.arrive({ tenant, model, conversationId: ID, prompts: unseen() })).region;
    expect([ask('u'), ask('t', 'n'), ask('t')]).toEqual(['jp', 'jp', 'sg']);
  });

  test('never takes it out of its tenant’s list', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    away(rig, 't/m#chat-1');
    const effects = rig.arrive({ conversationId: ID, prompts: unseen() });
    expect(kindOf(effects)).toEqual(['send', 'only_region', 'jp']);
  });

  test('says nothing against the end of its last turn: the cache is where the text was', () => {
    const rig = asia();
    away(rig, 't/7@4000', 'eu');
    rig.pass(1_000);
    away(rig, 't/m#chat-1');
    const text = rig.arrive({ conversationId: ID, prompts: [turnsOf(7, 2)] });
    expect([attemptIn(text).region, known(text)]).toEqual(['eu', 'text']);
  });

  test('goes before an earlier turn where it is the newer', () => {
    const rig = asia();
    away(rig, 't/7@4000', 'eu');
    rig.pass(1_000);
    away(rig, 't/m#chat-1');
    const id = rig.arrive({ conversationId: ID, prompts: [turnsOf(7, 3)] });
    expect([attemptIn(id).region, known(id)]).toEqual(['sg', 'id']);
    rig.pass(1_000);
    away(rig, 't/7@8000', 'eu');
    const text = rig.arrive({ conversationId: ID, prompts: [turnsOf(7, 4)] });
    expect([attemptIn(text).region, known(text)]).toEqual(['eu', 'text']);
  });

  test('under which more come than one conversation has says nothing of where they go', () => {
    const rig = asia();
    away(rig, 't/m#all');
    const ask = () => rig.arrive({ conversationId: 'all', prompts: unseen() });
    for (let n = 0; n < PACE_MAX; n += 1) expect(attemptIn(ask()).region).toBe('sg');
    const crowd = ask();
    expect(kindOf(crowd)).toEqual(['send', 'home', 'jp']);
    expect(attemptIn(crowd).byId).toBeNull();
    expect(crowd).toContainEqual({ kind: 'limit', limit: 'crowded_conversation_id' });
    rig.pass(60_000);
    for (const region of ['jp', 'sg', 'eu']) rig.report(region);
    expect(attemptIn(ask()).region).toBe('sg');
  });

  test('for everything does not keep a hot region from spilling', () => {
    const shares = [undefined, 'all'].map((conversationId) => {
      const rig = asia({ settings: { spillIntervalMs: 1_000, smoothingHalfLifeMs: 1 } });
      let [spilled, all] = [0, 0];
      for (let second = 0; second < 60; second += 1) {
        rig.pass(1_000);
        rig.report('jp', { waitingPrefillMs: 2_000 });
        rig.report('sg');
        rig.grant('sg', 2_000);
        for (let k = 0; k < 8; k += 1) {
          const named = conversationId === undefined ? {} : { conversationId };
          const effects = rig.arrive({ prompts: unseen(), ...named });
          all += 1;
          spilled += Number(decisionIn(effects)?.kind === 'spill');
          rig.end(attemptIn(effects).lease, usage(null));
        }
      }
      return spilled / all;
    });
    expect(shares[0]).toBeGreaterThan(0.2);
    expect(shares[1]).toBeGreaterThan(0.8 * (shares[0] as number));
  });

  test('that an older secret has named is found by it', () => {
    const keys = {
      generations: 2,
      keyOf: (tenant: string, { offset }: { offset: number }, generation = 0) =>
        `${generation}/${tenant}@${offset}`,
      keyOfId: ({ id }: { id: string }, generation = 0) => `${generation}/#${id}`,
    };
    const rig = asia({ keys });
    away(rig, '1/#chat-1');
    away(rig, '1/t@4000', 'eu');
    const id = attemptIn(rig.arrive({ conversationId: ID, prompts: unseen() }));
    expect(id).toMatchObject({ region: 'sg', byId: '0/#chat-1' });
    expect(attemptIn(rig.arrive({ prompts: [turnsOf(7, 2)] })).region).toBe('eu');
  });
});

describe('a hint', () => {
  function hint(more: Partial<Placement> = {}, tenant = 't', by = RIG_HINTS): string {
    const placement = {
      ...{ turnKey: 't/7@4000', idKey: null, region: 'sg' as RegionId, tokens: 2_000 },
      ...{ atMs: RIG_WALL_MS - 5_000, sinceMs: RIG_WALL_MS - 9_000, movedMs: null },
    };
    return by.sign({ ...placement, ...more }, tenant);
  }
  const ask = (rig: GlobalRig, token: string, more = {}) =>
    rig.arrive({ hint: token, prompts: [turnsOf(7, 2)], ...more });

  test('tells a router that never heard of the conversation where it lives', () => {
    const rig = asia();
    const effects = ask(rig, hint());
    expect(kindOf(effects)).toEqual(['send', 'affinity', 'sg']);
    expect(known(effects)).toBe('hint');
    expect(attemptIn(effects)).toMatchObject({ away: true, awayForMs: 9_000 });
    expect(effects).toContainEqual({ kind: 'hinted', result: 'good' });
  });

  test('by its id does so for a text without turns', () => {
    const rig = asia();
    const token = hint({ turnKey: null, idKey: 't/m#chat-1' });
    const effects = ask(rig, token, { conversationId: ID, prompts: unseen() });
    expect([attemptIn(effects).region, known(effects)]).toEqual(['sg', 'hint']);
  });

  test.each([
    ['forged', (): string => hint({}, 't', new PlacementHints('guessed')), 'signature'],
    ['of another tenant', (): string => hint({}, 'u'), 'signature'],
    ['that has expired', (): string => hint({ atMs: RIG_WALL_MS - 3_600_001 }), 'expired'],
    ['from the future', (): string => hint({ atMs: RIG_WALL_MS + 5_001 }), 'clock_ahead'],
    ['that is none', (): string => 'sg', 'malformed'],
    ['of another conversation', (): string => hint({ turnKey: 't/8@4000' }), 'other_conversation'],
    [
      'of another id',
      (): string => hint({ turnKey: null, idKey: 't/m#chat-2' }),
      'other_conversation',
    ],
  ])('%s counts for nothing, and is counted', (_, token, result) => {
    const rig = asia();
    const effects = ask(rig, token(), { conversationId: ID });
    expect(kindOf(effects)).toEqual(['send', 'home', 'jp']);
    expect(effects).toContainEqual({ kind: 'hinted', result });
  });

  test('never takes it out of its tenant’s list, nor to a region that is out', () => {
    const bound = asia({ tenants: { t: tenantOf(['jp']) } });
    expect(attemptIn(ask(bound, hint())).region).toBe('jp');
    const nowhere = ask(asia(), hint({ region: 'nowhere' as RegionId }));
    expect(attemptIn(nowhere).region).toBe('jp');
    const unseenYet = asia();
    unseenYet.pass(10_001);
    unseenYet.report('jp');
    expect(attemptIn(ask(unseenYet, hint())).region).toBe('jp');
  });

  test('gives way to what is known to be newer', () => {
    const rig = asia();
    away(rig, 't/7@4000', 'eu');
    const older = ask(rig, hint());
    expect([attemptIn(older).region, known(older)]).toEqual(['eu', 'text']);
    expect(attemptIn(ask(rig, hint({ atMs: RIG_WALL_MS + 4_000 }))).region).toBe('eu');
  });

  test('is given to whoever asks for one, with what a router remembers', () => {
    const rig = asia();
    expect(attemptIn(rig.arrive({ prompts: [turnsOf(7, 1)] })).hint).toBeNull();
    const asked = attemptIn(ask(rig, '1', { prompts: [turnsOf(8, 1)] }));
    expect(asked.hint).toEqual({ sinceAgoMs: 0, movedAgoMs: null });
    rig.end(asked.lease, COMPLETE);
    rig.pass(2_000);
    const later = attemptIn(ask(rig, '1', { prompts: [turnsOf(8, 2)] }));
    expect(later.hint).toEqual({ sinceAgoMs: 2_000, movedAgoMs: null });
  });
});

test('what is foretold of a named conversation is what is done, and foretelling it counts nothing', () => {
  const rig = asia();
  away(rig, 't/m#chat-1');
  for (let n = 0; n < 3 * PACE_MAX; n += 1) {
    const request = rig.request({ conversationId: ID, prompts: unseen() });
    for (let k = 0; k < 3; k += 1) rig.core.explain(request, rig.nowMs);
    const foretold = rig.core.explain(request, rig.nowMs);
    const done = decisionIn(rig.handle({ kind: 'arrived', request }));
    expect([foretold.region, foretold.conversation]).toEqual([done?.region, done?.conversation]);
  }
});
