import { describe, expect, test } from 'vitest';
import type { Incarnation, LinkId, ReplicaId } from '../../shared/model/ids.ts';
import type { RouterEffect } from './events.ts';
import { attemptsIn, chainOf, COMPLETE, CoreRig, refusalIn, sentTo } from './core.harness.ts';

const GRACE_MS = 30_000;

function stateOf(rig: CoreRig, name: string) {
  return rig.core
    .status(rig.nowMs)
    .pools.flatMap((pool) => pool.replicas)
    .find((replica) => replica.id === name);
}

/** Time passes while the named replicas report every 500 ms. */
function passReporting(rig: CoreRig, ms: number, names: readonly string[]): RouterEffect[] {
  const effects: RouterEffect[] = [];
  for (let left = ms; left > 0; left -= 500) {
    effects.push(...rig.pass(Math.min(500, left)));
    for (const name of names) effects.push(...rig.report(name));
  }
  return effects;
}

/** A pool whose replicas have been fresh for longer than the window. */
function settled(names: readonly string[]): CoreRig {
  const rig = new CoreRig();
  for (const name of names) rig.ready(name);
  passReporting(rig, 61_000, names);
  return rig;
}

describe('a link', () => {
  test('with fewer ranks than its agent said before sends nothing to those that are gone', () => {
    const rig = new CoreRig();
    rig.link('l', { replicas: ['a'], ranks: 3 });
    for (const [rank, waitingPrefillMs] of [500, 500, 0].entries()) {
      rig.report('a', { rank, waitingPrefillMs }, 'l');
    }
    const [first] = attemptsIn(rig.arrive());
    expect(first?.target.rank).toBe(2);
    rig.report('a', { rank: 1 }, 'l');
    rig.unlink('l');
    rig.link('l2', { replicas: ['a'], ranks: 1, agent: 'other' });
    rig.report('a', { rank: 0, waitingPrefillMs: 50 }, 'l2');
    expect(attemptsIn(rig.arrive())[0]?.target.rank).toBe(0);
    rig.end(first?.lease ?? '', COMPLETE);
    expect(rig.core.leaseCount()).toBe(1);
  });

  test('is welcomed, and told the open leases of each target', () => {
    const rig = new CoreRig();
    const effects = rig.link('l', { replicas: ['a', 'b'], ranks: 2 });
    const [welcome, ...rest] = sentTo(effects, 'l');
    expect(welcome).toMatchObject({
      kind: 'welcome',
      protocol: 1,
      routerId: 'router-1',
      minReportIntervalMs: 50,
      resume: [],
    });
    expect(rest.map((m) => m.kind === 'leases' && [m.replica, m.rank, m.seq, m.open])).toEqual([
      ['a', 0, 0, []],
      ['a', 1, 0, []],
      ['b', 0, 0, []],
      ['b', 1, 0, []],
    ]);
  });

  test('is closed by name when it speaks no version of ours or is of no pool of ours', () => {
    const rig = new CoreRig();
    const closes = (effects: RouterEffect[]) => effects.filter(({ kind }) => kind === 'close');
    expect(closes(rig.link('l', { pool: 'nope' }))).toEqual([
      { kind: 'close', link: 'l', reason: 'unknown_pool' },
    ]);
    expect(closes(rig.link('old', { protocol: [0, 0] }))).toEqual([
      { kind: 'close', link: 'old', reason: 'protocol_too_old' },
    ]);
    expect(rig.core.status(rig.nowMs).links).toBe(0);
  });

  test('says nothing about replicas that are not its own', () => {
    const rig = new CoreRig();
    rig.ready('a');
    rig.link('b');
    rig.report('a', { phase: 'dead' }, 'b');
    expect(stateOf(rig, 'a')?.targets[0]?.phase).toBe('ready');
    expect(rig.seen.filter(({ kind }) => kind === 'limit')).toHaveLength(1);
  });

  test('of a second agent for one engine takes over; the first is fenced and no longer heard', () => {
    const rig = new CoreRig();
    rig.ready('a');
    const effects = rig.link('new', { replicas: ['a'] });
    expect(sentTo(effects, 'a')).toEqual([{ kind: 'fence', replica: 'a' }]);
    rig.report('a', {}, 'new');
    rig.report('a', { phase: 'dead' }, 'a');
    rig.unlink('a');
    expect(stateOf(rig, 'a')).toMatchObject({ link: 'fresh', targets: [{ phase: 'ready' }] });
    expect(attemptsIn(rig.arrive())).toHaveLength(1);
  });

  test.each(['lost', 'bye'])(
    'of a fenced agent is closed, to begin anew, when the newer is gone (%s)',
    (how) => {
      const rig = new CoreRig();
      rig.ready('a');
      rig.link('new', { replicas: ['a'] });
      const bye = { kind: 'bye', replica: 'a' as ReplicaId, reason: 'drained' } as const;
      const heard = { kind: 'message', link: 'new' as LinkId, message: bye } as const;
      const effects = how === 'lost' ? rig.unlink('new') : rig.handle(heard);
      expect(effects).toContainEqual({ kind: 'close', link: 'a', reason: 'fenced' });
      rig.unlink('a');
      rig.link('back', { replicas: ['a'] });
      rig.report('a', {}, 'back');
      expect(stateOf(rig, 'a')).toMatchObject({ link: 'fresh', targets: [{ phase: 'ready' }] });
    },
  );

  test('of a new agent process gets back what was known of the living engine; of the old one nothing', () => {
    const rig = new CoreRig();
    rig.ready('a', { kappa: 0.9 });
    rig.holds('a', chainOf([1, 2, 3]));
    rig.unlink('a');
    const resume = (effects: RouterEffect[], link: string) => {
      const [welcome] = sentTo(effects, link);
      return welcome?.kind === 'welcome' ? welcome.resume : null;
    };
    expect(resume(rig.link('again', { replicas: ['a'], agent: 'agent-a' }), 'again')).toEqual([]);
    rig.unlink('again');
    expect(resume(rig.link('other', { replicas: ['a'] }), 'other')).toMatchObject([
      { replica: 'a', incarnation: 'a/1', kappa: 0.9, runs: [{ depth: 0 }] },
    ]);
  });

  test('with a gap in its prefixes is asked for a snapshot; what was sent since stays expected', () => {
    const rig = new CoreRig();
    rig.ready('a');
    rig.ready('b');
    rig.holds('a', chainOf([1]));
    const prompts = [chainOf([5, 6, 7])];
    const replica = attemptsIn(rig.arrive({ prompts }))[0]?.target.replica ?? '';
    rig.firstToken('r1.1');
    expect(sentTo(rig.holds(replica, chainOf([2]), 7), replica)).toEqual([
      { kind: 'resync', replica, rank: 0 },
    ]);
    expect(sentTo(rig.holds(replica, chainOf([3]), 8), replica)).toEqual([]);
    rig.holds(replica, chainOf([2]), 0);
    expect(attemptsIn(rig.arrive({ prompts }))[0]?.target.replica).toBe(replica);
  });
});

describe('a replica', () => {
  test('that says bye is gone at once', () => {
    const rig = new CoreRig();
    rig.ready('a');
    rig.handle({
      kind: 'message',
      link: 'a' as LinkId,
      message: { kind: 'bye', replica: 'a' as ReplicaId, reason: 'drained' },
    });
    expect(refusalIn(rig.arrive())?.code).toBe('no_replica');
    expect(stateOf(rig, 'a')).toBeUndefined();
  });

  test('whose agent shut down is known to the next agent of the same engine', () => {
    const rig = new CoreRig();
    rig.ready('a', { kappa: 0.9 });
    rig.holds('a', chainOf([1, 2, 3]));
    const { kind, replica } = { kind: 'bye', replica: 'a' as ReplicaId } as const;
    const message = { kind, replica, reason: 'shutdown' } as const;
    rig.handle({ kind: 'message', link: 'a' as LinkId, message });
    rig.unlink('a');
    rig.pass(60_000);
    const [welcome] = sentTo(rig.link('next', { replicas: ['a'] }), 'next');
    expect(welcome).toMatchObject({
      resume: [{ incarnation: 'a/1', kappa: 0.9, prefillCost: {}, runs: [{ depth: 0 }] }],
    });
    expect(refusalIn(rig.arrive())?.code).toBe('no_replica');
    rig.report('a', {}, 'next');
    expect(attemptsIn(rig.arrive())).toHaveLength(1);
  });

  test('whose link is lost is stale and used for the grace, then out', () => {
    const rig = settled(['a', 'b', 'c', 'd']);
    rig.unlink('a');
    expect(stateOf(rig, 'a')?.link).toBe('stale');
    passReporting(rig, GRACE_MS - 1_000, ['b', 'c', 'd']);
    expect(stateOf(rig, 'a')?.link).toBe('stale');
    passReporting(rig, 1_500, ['b', 'c', 'd']);
    expect(stateOf(rig, 'a')?.link).toBe('out');
    const { candidates } = rig.core.explain(rig.request(), rig.nowMs);
    expect(candidates.find(({ target }) => target.replica === 'a')?.removed).toBe('stale');
  });

  test('whose reports stop is stale although its link stands, and fresh with the next one', () => {
    const rig = settled(['a', 'b']);
    passReporting(rig, 3_500, ['b']);
    expect(stateOf(rig, 'a')?.link).toBe('stale');
    rig.report('a');
    expect(stateOf(rig, 'a')?.link).toBe('fresh');
  });

  test('of a pool whose agents fall silent together stays in use, up to its last seen peak', () => {
    const rig = settled(['a', 'b', 'c', 'd']);
    for (const name of ['a', 'b', 'c', 'd']) rig.report(name, { running: 2 });
    for (const name of ['a', 'b', 'c', 'd']) rig.unlink(name);
    rig.pass(GRACE_MS + 500);
    const links = ['a', 'b', 'c', 'd'].map((name) => stateOf(rig, name)?.link);
    expect(links).toEqual(['static', 'static', 'static', 'static']);
    rig.pass(600_000);
    const prompts = [chainOf([1])];
    const sent = Array.from({ length: 20 }, () => attemptsIn(rig.arrive({ prompts })).length);
    // Each request is 128 ms of work: one makes a replica full, none goes beyond two.
    expect(sent.filter((count) => count === 1).length).toBeLessThanOrEqual(8);
    expect(sent.filter((count) => count === 1).length).toBeGreaterThanOrEqual(4);
  });

  test('alone in its pool stays in use past the grace', () => {
    const rig = settled(['a']);
    rig.unlink('a');
    rig.pass(GRACE_MS + 500);
    expect(stateOf(rig, 'a')?.link).toBe('static');
    expect(attemptsIn(rig.arrive())).toHaveLength(1);
  });

  test.each([
    ['no connection', { kind: 'connectFailed', detail: '' }],
    ['a 5xx', { kind: 'serverFault', cause: 'status', detail: '500' }],
    ['no first token', { kind: 'serverFault', cause: 'first_token_timeout', detail: '' }],
  ] as const)('without its agent is down after %s, until a probe succeeds', (_, result) => {
    const rig = settled(['a']);
    rig.unlink('a');
    rig.pass(GRACE_MS + 500);
    rig.arrive();
    rig.end('r1.1', result);
    expect(refusalIn(rig.arrive())?.code).toBe('no_replica');
    const probes = (effects: RouterEffect[]) => effects.filter(({ kind }) => kind === 'probe');
    expect(probes(rig.pass(1_500))).toEqual([
      { kind: 'probe', replica: 'a', pool: 'pool', url: 'http://a', model: 'm' },
    ]);
    expect(probes(rig.pass(10_000))).toEqual([]);
    rig.handle({ kind: 'probed', replica: 'a' as ReplicaId, ok: false });
    expect(probes(rig.pass(1_000))).toEqual([]);
    expect(probes(rig.pass(2_000))).toHaveLength(1);
    rig.handle({ kind: 'probed', replica: 'a' as ReplicaId, ok: true });
    expect(attemptsIn(rig.arrive())).toHaveLength(1);
  });

  test('without its agent is up again when the agent returns', () => {
    const rig = settled(['a']);
    rig.unlink('a');
    rig.arrive();
    rig.end('r1.1', { kind: 'connectFailed', detail: '' });
    expect(stateOf(rig, 'a')?.down).toBe(true);
    rig.link('back', { replicas: ['a'] });
    rig.report('a', {}, 'back');
    expect(stateOf(rig, 'a')).toMatchObject({ down: false, link: 'fresh' });
  });

  test('that left is forgotten in the end, with its prefixes', () => {
    const rig = settled(['a', 'b', 'c']);
    rig.holds('a', chainOf([1, 2, 3]));
    rig.unlink('a');
    passReporting(rig, GRACE_MS + 601_000, ['b', 'c']);
    expect(stateOf(rig, 'a')).toBeUndefined();
    expect(rig.core.status(rig.nowMs).index.chunks).toBe(0);
  });

  test('keeps serving a stream that outlives its link, and its lease ends once', () => {
    const rig = settled(['a']);
    rig.arrive();
    rig.firstToken('r1.1');
    rig.unlink('a');
    rig.pass(GRACE_MS);
    rig.link('back', { replicas: ['a'] });
    const effects = rig.end('r1.1', COMPLETE, true);
    // The `leases` of the new link went on counting, and this after it.
    expect(sentTo(effects, 'back')).toMatchObject([{ kind: 'ended', seq: 4, lease: 'r1.1' }]);
    expect(rig.end('r1.1', COMPLETE, true)).toEqual([]);
  });

  test('shows in the log when its agent came and why it went', () => {
    const rig = new CoreRig();
    const up = rig.link('a').find((effect) => effect.kind === 'log' && effect.code === 'link_up');
    expect(up).toMatchObject({ level: 'info', fields: { agent: 'agent-a', replicas: 1 } });
    const link = 'a' as LinkId;
    const down = rig.handle({ kind: 'linkDown', link, reason: 'silent' });
    expect(down.find((effect) => effect.kind === 'log')).toMatchObject({
      code: 'link_down',
      fields: { replica: 'a', reason: 'silent' },
    });
  });

  test('shows its phases in the log, once each', () => {
    const rig = new CoreRig();
    rig.link('a');
    rig.report('a', { phase: 'loading', incarnation: null });
    rig.report('a', { phase: 'loading', incarnation: null });
    rig.report('a', { phase: 'ready', incarnation: 'a/1' as Incarnation });
    const phases = rig.seen.flatMap((effect) =>
      effect.kind === 'log' && effect.code === 'replica_phase' ? [effect.fields['phase']] : [],
    );
    expect(phases).toEqual(['loading', 'ready']);
  });
});

describe('the routers that an agent is linked to', () => {
  const WORKERS = ['ws://r:8081', 'ws://r:8091'];

  /** Reports with so many links, each second, until `ms` have passed; the codes that were logged. */
  function say(rig: CoreRig, links: number, ms: number): string[] {
    const codes: string[] = [];
    for (let left = ms; left >= 0; left -= 1_000) {
      for (const effect of [...rig.report('a', { routers: links }), ...rig.pass(1_000)]) {
        if (effect.kind === 'log') codes.push(effect.code);
      }
    }
    return codes.filter((code) => code === 'few_links');
  }

  test('are named by the welcome: those of the configuration, and the workers as it reaches them', () => {
    const rig = new CoreRig();
    const [welcome] = sentTo(rig.link('a', { siblings: WORKERS }), 'a');
    expect(welcome).toMatchObject({ kind: 'welcome', siblings: WORKERS });
  });

  test('are too few for a while before it is said, once', () => {
    const rig = new CoreRig();
    rig.link('a', { siblings: WORKERS });
    expect(say(rig, 1, 14_000)).toEqual([]);
    expect(say(rig, 1, 60_000)).toEqual(['few_links']);
    expect(say(rig, 2, 1_000)).toEqual([]);
    expect(say(rig, 1, 60_000)).toEqual(['few_links']);
  });

  test('are enough where there is one of them', () => {
    const rig = new CoreRig();
    rig.link('a');
    expect(say(rig, 1, 60_000)).toEqual([]);
  });
});
