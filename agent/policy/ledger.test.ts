import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Ledger, MAX_OPEN, type LedgerEntry, type LedgerLink } from './ledger.ts';
import type { Incarnation, LeaseId, LinkId, ReplicaId, RouterId } from '../../shared/model/ids.ts';
import type {
  Ended,
  FirstToken,
  LeaseFacts,
  Leases,
  Sent,
} from '../../shared/protocol/messages.ts';

const REPLICA = 'r:1' as ReplicaId;
const LIFE = 'life-1' as Incarnation;
const ROUTERS = ['A', 'B'] as const;
type Message = Leases | Sent | FirstToken | Ended;

function facts(lease: string, incarnation: Incarnation | null = LIFE): LeaseFacts {
  return {
    lease: lease as LeaseId,
    incarnation,
    promptTokens: 100,
    uncachedTokens: 100,
    matchedTokens: 0,
    promptBytes: 400,
    parts: {},
    streamed: true,
    maxTokens: null,
    chains: [],
  };
}

/** Counts what the listener hears; an entry that is opened twice or closed unopened fails. */
function heardLedger(linkGraceMs = 10_000): { ledger: Ledger; open: Set<LedgerEntry> } {
  const open = new Set<LedgerEntry>();
  const ledger = new Ledger({
    linkGraceMs,
    listener: {
      opened: (entry) => {
        expect(open.has(entry)).toBe(false);
        open.add(entry);
      },
      firstToken: (entry) => expect(open.has(entry)).toBe(true),
      closed: (entry) => expect(open.delete(entry)).toBe(true),
      full: () => expect.unreachable(),
    },
  });
  ledger.incarnate(LIFE, 0);
  return { ledger, open };
}

/** A router with its links: what it says, and what it held open when it said it. */
class Speaker {
  readonly router: RouterId;
  readonly lines: { link: LedgerLink; queue: Message[]; closing: boolean }[] = [];
  readonly held = new Map<string, string[]>();
  private readonly open = new Map<string, boolean>();
  private seq = 0;
  private leases = 0;

  constructor(name: string) {
    this.router = name as RouterId;
  }

  get line(): (typeof this.lines)[number] | undefined {
    const last = this.lines.at(-1);
    return last?.closing === false ? last : undefined;
  }

  connect(order: number): void {
    for (const line of this.lines) line.closing = true;
    const link = { link: `L${order}` as LinkId, order, router: this.router };
    this.lines.push({ link, queue: [], closing: false });
    this.seq = -1;
    const open = [...this.open].map(([lease, first]) => {
      return { ...facts(lease), sentAgoMs: 5, firstTokenAgoMs: first ? 1 : null };
    });
    this.say({ kind: 'leases', replica: REPLICA, rank: 0, seq: 0, open });
  }

  send(): void {
    this.leases += 1;
    const lease = `${this.router}${this.leases}`;
    this.open.set(lease, false);
    this.say({
      kind: 'sent',
      replica: REPLICA,
      rank: 0,
      seq: this.seq + 1,
      agoMs: 0,
      ...facts(lease),
    });
  }

  first(which: number): void {
    const lease = [...this.open.keys()][which % Math.max(1, this.open.size)];
    if (lease === undefined) return;
    this.open.set(lease, true);
    this.say({
      kind: 'firstToken',
      replica: REPLICA,
      rank: 0,
      seq: this.seq + 1,
      agoMs: 0,
      lease: lease as LeaseId,
    });
  }

  end(which: number): void {
    const lease = [...this.open.keys()][which % Math.max(1, this.open.size)];
    if (lease === undefined) return;
    this.open.delete(lease);
    this.say({
      kind: 'ended',
      replica: REPLICA,
      rank: 0,
      seq: this.seq + 1,
      agoMs: 0,
      lease: lease as LeaseId,
      outcome: 'complete',
      usage: null,
    });
  }

  /** Without a link nothing is said: the next snapshot will. */
  private say(message: Message): void {
    const { line } = this;
    if (line === undefined) return;
    this.seq = message.seq;
    line.queue.push(message);
    this.held.set(`${line.link.link}/${message.seq}`, [...this.open.keys()].sort());
  }
}

function deliver(ledger: Ledger, link: LedgerLink, message: Message, nowMs: number): void {
  if (message.kind === 'leases') ledger.leases(link, message, nowMs);
  else if (message.kind === 'sent') ledger.sent(link, message, nowMs);
  else if (message.kind === 'firstToken') ledger.firstToken(link, message, nowMs);
  else ledger.ended(link, message, nowMs);
}

const action = fc.record({
  kind: fc.constantFrom(
    'send',
    'send',
    'first',
    'end',
    'hear',
    'hear',
    'hear',
    'connect',
    'lose',
    'reborn',
  ),
  router: fc.nat({ max: ROUTERS.length - 1 }),
  which: fc.nat({ max: 9 }),
});

test('holds exactly what each router held at the event that it acknowledges, however links interleave', () => {
  fc.assert(
    fc.property(fc.array(action, { maxLength: 150 }), (actions) => {
      const { ledger, open } = heardLedger();
      const speakers = ROUTERS.map((name) => new Speaker(name));
      let order = 0;
      let lives = 0;
      actions.forEach(({ kind, router, which }, nowMs) => {
        const speaker = speakers[router] as Speaker;
        if (kind === 'send') speaker.send();
        if (kind === 'first') speaker.first(which);
        if (kind === 'end') speaker.end(which);
        if (kind === 'connect') speaker.connect((order += 1));
        if (kind === 'reborn' && which === 0) {
          lives += 1;
          ledger.incarnate(`life-${nowMs}` as Incarnation, nowMs);
        }
        const line = speaker.lines[which % Math.max(1, speaker.lines.length)];
        if (kind === 'hear' && line !== undefined) {
          const message = line.queue.shift();
          if (message !== undefined) deliver(ledger, line.link, message, nowMs);
          else if (line.closing) ledger.linkDown(line.link.link, nowMs);
        }
        if (kind === 'lose' && line?.closing === true) {
          line.queue.length = 0;
          ledger.linkDown(line.link.link, nowMs);
        }
        for (const each of speakers) {
          const acked = each.lines.filter(({ link }) => ledger.ackedSeq(link) >= 0);
          expect(acked.length).toBeLessThanOrEqual(1);
          const link = acked[0]?.link;
          if (link === undefined) continue;
          const mine = [...ledger.open()].filter((entry) => entry.router === each.router);
          const told = each.held.get(`${link.link}/${ledger.ackedSeq(link)}`) ?? [];
          const living = mine.map((entry) => entry.lease as string).sort();
          // Leases of a life that is over are acknowledged, not held.
          expect(told).toEqual(expect.arrayContaining(living));
          if (lives === 0) expect(living).toEqual(told);
        }
        expect(open.size).toBe(ledger.openCount());
      });
    }),
    { numRuns: 500 },
  );
});

describe('links', () => {
  const linkOf = (name: string, order: number, router = 'A'): LedgerLink => ({
    link: name as LinkId,
    order,
    router: router as RouterId,
  });
  const snapshot = (...names: string[]): Leases => ({
    kind: 'leases',
    replica: REPLICA,
    rank: 0,
    seq: 0,
    open: names.map((name) => ({ ...facts(name), sentAgoMs: 10, firstTokenAgoMs: null })),
  });
  const sent = (seq: number, name: string, incarnation: Incarnation | null = LIFE): Sent => ({
    kind: 'sent',
    replica: REPLICA,
    rank: 0,
    seq,
    agoMs: 0,
    ...facts(name, incarnation),
  });

  test('a message of an old link after the new snapshot is ignored', () => {
    const { ledger } = heardLedger();
    const [old, fresh] = [linkOf('1', 1), linkOf('2', 2)];
    ledger.leases(old, snapshot(), 0);
    ledger.leases(fresh, snapshot('x'), 1);
    expect(ledger.sent(old, sent(1, 'y'), 2)).toBe('unknown_link');
    expect(ledger.leases(old, snapshot('z'), 3)).toBe('unknown_link');
    expect([...ledger.open()].map((entry) => entry.lease)).toEqual(['x']);
    expect([ledger.ackedSeq(old), ledger.ackedSeq(fresh)]).toEqual([-1, 0]);
  });

  test('nothing is acknowledged before the snapshot', () => {
    const { ledger } = heardLedger();
    expect(ledger.sent(linkOf('1', 1), sent(1, 'x'), 0)).toBe('unknown_link');
    expect(ledger.ackedSeq(linkOf('1', 1))).toBe(-1);
    expect(ledger.openCount()).toBe(0);
  });

  test('leases of a closed link stay for the grace, then go; no other router inherits them', () => {
    const { ledger } = heardLedger(10_000);
    ledger.leases(linkOf('1', 1), snapshot('x'), 0);
    ledger.linkDown('1' as LinkId, 1_000);
    ledger.leases(linkOf('2', 2, 'B'), snapshot(), 1_500);
    ledger.expire(10_999);
    expect(ledger.openCount()).toBe(1);
    expect(ledger.nextExpiryMs()).toBe(11_000);
    ledger.expire(11_000);
    expect(ledger.openCount()).toBe(0);
  });

  test('a router that returns within the grace keeps its entries, as the same entries', () => {
    const { ledger } = heardLedger();
    ledger.leases(linkOf('1', 1), snapshot('x', 'y'), 0);
    const [x] = [...ledger.open()];
    ledger.linkDown('1' as LinkId, 1_000);
    ledger.leases(linkOf('2', 2), snapshot('x'), 2_000);
    expect([...ledger.open()]).toEqual([x]);
    ledger.expire(60_000);
    expect(ledger.openCount()).toBe(1);
  });

  test('a lease of another engine life is acknowledged and not held', () => {
    const { ledger } = heardLedger();
    const link = linkOf('1', 1);
    ledger.leases(link, snapshot(), 0);
    expect(ledger.sent(link, sent(1, 'x', 'life-0' as Incarnation), 1)).toBe('applied');
    expect(ledger.openCount()).toBe(0);
    expect(ledger.ackedSeq(link)).toBe(1);
  });

  test('a new engine life empties it and waits for fresh snapshots', () => {
    const { ledger } = heardLedger();
    const link = linkOf('1', 1);
    ledger.leases(link, snapshot('x'), 0);
    ledger.incarnate('life-2' as Incarnation, 1);
    expect(ledger.openCount()).toBe(0);
    expect(ledger.ackedSeq(link)).toBe(-1);
    expect(ledger.sent(link, sent(1, 'y', 'life-2' as Incarnation), 2)).toBe('unknown_link');
    ledger.leases(link, { ...snapshot(), seq: 0 }, 3);
    expect(ledger.ackedSeq(link)).toBe(0);
  });

  test('tells a router how far it has heard the others, and of each only what is new', () => {
    const { ledger } = heardLedger(10_000);
    const [one, other] = [linkOf('1', 1), linkOf('2', 2, 'B')];
    const told = new Map<RouterId, number>();
    ledger.leases(one, { ...snapshot(), seq: 3 }, 0);
    ledger.leases(other, { ...snapshot('x'), seq: 7 }, 0);
    expect(ledger.othersAcked(one.router, told)).toEqual([{ router: 'B', seq: 7 }]);
    expect(ledger.othersAcked(one.router, told)).toEqual([]);
    ledger.sent(one, sent(4, 'y'), 1);
    ledger.sent(other, sent(8, 'z'), 1);
    expect(ledger.othersAcked(one.router, told)).toEqual([{ router: 'B', seq: 8 }]);
    expect(ledger.othersAcked(null, new Map()).map(({ seq }) => seq)).toEqual([4, 8]);
    // Its link is closed: what it has said is in the figures until the grace is over.
    ledger.linkDown(other.link, 2);
    expect(ledger.othersAcked(one.router, told)).toEqual([]);
    ledger.expire(60_000);
    ledger.othersAcked(one.router, told);
    expect(told.size).toBe(0);
    ledger.leases(linkOf('3', 3, 'B'), { ...snapshot(), seq: 8 }, 60_001);
    expect(ledger.othersAcked(one.router, told)).toEqual([{ router: 'B', seq: 8 }]);
  });

  test('counts an attempt for as many requests as the engine makes of it, until it ends', () => {
    const { ledger } = heardLedger();
    const link = linkOf('1', 1);
    const [open] = snapshot('x').open;
    if (open === undefined) throw new Error('no lease');
    ledger.leases(link, { ...snapshot(), open: [{ ...open, requests: 8 }] }, 0);
    ledger.sent(link, { ...sent(1, 'y'), requests: 3 }, 1);
    ledger.sent(link, sent(2, 'z'), 1);
    expect([ledger.openCount(), ledger.openRequests()]).toEqual([3, 12]);
    ledger.linkDown(link.link, 2);
    expect(ledger.orphans(3)).toBe(12);
    ledger.leases(linkOf('1', 2), snapshot('x'), 4);
    expect([ledger.openRequests(), ledger.insideRequests()]).toEqual([8, 8]);
    ledger.incarnate('another' as Incarnation, 5);
    expect(ledger.openRequests()).toBe(0);
  });

  test("a router's book is bounded: what is beyond is acknowledged, counted and not held", () => {
    let full = 0;
    const ledger = new Ledger({
      linkGraceMs: 1,
      listener: {
        opened: () => {},
        firstToken: () => {},
        closed: () => {},
        full: () => (full += 1),
      },
    });
    const link = linkOf('1', 1);
    ledger.leases(link, snapshot(), 0);
    for (let seq = 1; seq <= MAX_OPEN + 2; seq += 1) ledger.sent(link, sent(seq, `l${seq}`), 1);
    expect([ledger.openCount(), ledger.ackedSeq(link), full]).toEqual([MAX_OPEN, MAX_OPEN + 2, 2]);
  });

  test('an agent that learns the life late keeps what belongs to it', () => {
    const ledger = new Ledger({
      linkGraceMs: 1,
      listener: { opened: () => {}, firstToken: () => {}, closed: () => {}, full: () => {} },
    });
    const link = linkOf('1', 1);
    ledger.leases(link, snapshot('x'), 0);
    ledger.sent(link, sent(1, 'y', 'life-0' as Incarnation), 1);
    ledger.incarnate(LIFE, 2);
    expect([...ledger.open()].map((entry) => entry.lease)).toEqual(['x']);
    expect(ledger.ackedSeq(link)).toBe(1);
  });
});
