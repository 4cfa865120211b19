import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { Packr } from 'msgpackr';
import { describe, expect, it, test } from 'vitest';
import {
  decodeAgentMessage,
  decodeRouterMessage,
  encodeAgentMessage,
  encodeRouterMessage,
} from './codec.ts';
import { MAX_CHAINS, MAX_FRAME_BYTES, MAX_LEASE_REQUESTS } from './limits.ts';
import type { AgentMessage, PrefixMessage, RouterMessage } from './messages.ts';

interface Recorded<T> {
  readonly hex: string;
  readonly message: T;
}

/** Frames that the encoder of protocol version 1 wrote, and what they mean. */
const recorded = JSON.parse(
  readFileSync(new URL('fixtures/version-1.json', import.meta.url), 'utf8'),
  (_key, value: unknown) => (isWords(value) ? Uint32Array.from(value.words) : value),
) as { agent: Recorded<AgentMessage>[]; router: Recorded<RouterMessage>[] };

function isWords(value: unknown): value is { words: number[] } {
  return typeof value === 'object' && value !== null && 'words' in value;
}

/** What a report of an agent from before these fields says of them: unknown. */
const SINCE_VERSION_1 = {
  degradedFor: null,
  slowRatio: null,
  progress: null,
  gpus: null,
  costError: null,
  kvCachedTokens: null,
  absent: [],
};

function asReadNow(message: AgentMessage): AgentMessage {
  if (message.kind !== 'report') return message;
  return { ...message, report: { ...SINCE_VERSION_1, ...message.report } };
}

function bytesOf(hex: string): Uint8Array {
  return Uint8Array.from(Buffer.from(hex, 'hex'));
}

const plain = new Packr({ useRecords: false });
const report = recorded.agent.find(({ message }) => message.kind === 'report')!.message;

function packed(value: unknown): Uint8Array {
  return plain.pack(value);
}

describe('recorded frames of version 1', () => {
  for (const { hex, message } of recorded.agent) {
    it(`reads ${message.kind} from an agent to the recorded message`, () => {
      expect(decodeAgentMessage(bytesOf(hex))).toEqual({
        ok: true,
        message: asReadNow(message),
        unknownFields: 0,
      });
    });
  }
  for (const { hex, message } of recorded.router) {
    it(`reads ${message.kind} from a router to the recorded message`, () => {
      expect(decodeRouterMessage(bytesOf(hex))).toEqual({ ok: true, message, unknownFields: 0 });
    });
  }
});

test('a report asks for an echo or, as those of version 1, does not', () => {
  const asking = { ...report, echo: true } as AgentMessage;
  expect(decodeAgentMessage(encodeAgentMessage(asking))).toMatchObject({ message: { echo: true } });
  const decoded = decodeAgentMessage(encodeAgentMessage(report));
  expect(decoded.ok && 'echo' in decoded.message).toBe(false);
});

const u32 = fc.integer({ min: 0, max: 0xffff_ffff });
const words = fc
  .array(fc.tuple(u32, u32), { maxLength: 40 })
  .map((pairs) => Uint32Array.from(pairs.flat()));
const id = fc.string({ minLength: 1, maxLength: 40, unit: 'grapheme' });
const amount = fc.double({ min: 0, max: 1e15, noNaN: true });
const tokens = fc.nat();

const prefixFields = {
  kind: fc.constant('prefix'),
  replica: id,
  rank: fc.nat(1_023),
  incarnation: id,
  seq: u32,
  runs: fc.array(
    fc.record({ parentLow: u32, parentHigh: u32, depth: fc.nat(131_072), hashes: words }),
  ),
  leaves: fc.array(
    fc.record({
      hashLow: u32,
      hashHigh: u32,
      promptTokens: fc.option(tokens),
      answerTokens: tokens,
    }),
  ),
  evicted: words,
};
const prefix = fc.oneof(
  fc.record(prefixFields),
  fc.record({ ...prefixFields, continues: fc.constant(true) }),
) as unknown as fc.Arbitrary<PrefixMessage>;

const facts = {
  lease: id,
  incarnation: fc.option(id),
  promptTokens: amount,
  uncachedTokens: amount,
  matchedTokens: amount,
  promptBytes: tokens,
  parts: fc.dictionary(fc.constantFrom('image', 'audio', 'video'), tokens, {
    noNullPrototype: true,
  }),
  streamed: fc.boolean(),
  maxTokens: fc.option(tokens),
  requests: fc.integer({ min: 1, max: MAX_LEASE_REQUESTS }),
  restedMs: tokens,
  chains: fc.array(fc.record({ hashes: words, endLow: u32, endHigh: u32, turnEnds: words }), {
    maxLength: 4,
  }),
};

const ledger = { replica: id, rank: fc.nat(1_023), seq: tokens };
const fromRouter = fc.oneof(
  fc.record({ kind: fc.constant('sent'), ...ledger, agoMs: amount, ...facts }),
  fc.record({
    kind: fc.constant('leases'),
    ...ledger,
    open: fc.array(fc.record({ ...facts, sentAgoMs: amount, firstTokenAgoMs: fc.option(amount) }), {
      maxLength: 5,
    }),
  }),
  fc.record({ kind: fc.constant('firstToken'), ...ledger, lease: id, agoMs: amount }),
  fc.record({ kind: fc.constant('pace'), minReportIntervalMs: amount }),
  fc.record({ kind: fc.constant('heard'), replica: id, rank: fc.nat(1_023), reportSeq: tokens }),
  fc.record(
    {
      kind: fc.constant('queued'),
      pool: id,
      prefillMs: amount,
      requests: tokens,
      topPriority: fc.option(fc.integer({ min: -100, max: 100 })),
      // Before its time where a request's length costs it more than its age has given it.
      headAgeMs: fc.double({ min: -1e6, max: 1e6, noNaN: true }),
    },
    { requiredKeys: ['kind', 'pool', 'prefillMs', 'requests', 'topPriority'] },
  ),
) as unknown as fc.Arbitrary<RouterMessage>;

describe('round trips', () => {
  it('returns any prefix message', () => {
    fc.assert(
      fc.property(prefix, (message) => {
        expect(decodeAgentMessage(encodeAgentMessage(message))).toEqual({
          ok: true,
          message,
          unknownFields: 0,
        });
      }),
    );
  });

  it('returns any ledger message', () => {
    fc.assert(
      fc.property(fromRouter, (message) => {
        expect(decodeRouterMessage(encodeRouterMessage(message))).toEqual({
          ok: true,
          message,
          unknownFields: 0,
        });
      }),
    );
  });

  it('returns a report with the place of its router among those that queue', () => {
    if (report.kind !== 'report') throw new Error('no report is recorded');
    for (const othersTop of [null, -1, 0]) {
      const turn = othersTop === 0 ? { turnMs: 6.25, othersRequests: 3, oldestAgeMs: -12.5 } : {};
      const place = { othersTop, othersAtTop: 2, before: 1, ...turn };
      const queued = { ...report.report.queued, place };
      const message = asReadNow({ ...report, report: { ...report.report, queued } });
      const read = decodeAgentMessage(encodeAgentMessage(message));
      expect(read).toEqual({ ok: true, message, unknownFields: 0 });
    }
  });

  it('reads hash words at any alignment of the frame', () => {
    for (const { hex, message } of recorded.agent) {
      for (let shift = 0; shift < 4; shift += 1) {
        const frame = bytesOf(hex);
        const shifted = new Uint8Array(frame.length + shift).subarray(shift);
        shifted.set(frame);
        expect(decodeAgentMessage(shifted)).toMatchObject({ ok: true, message });
      }
    }
  });

  it('owns its words: the frame may be overwritten afterwards', () => {
    for (const { hex, message } of recorded.agent) {
      const frame = bytesOf(hex);
      const decoded = decodeAgentMessage(frame);
      frame.fill(0xff);
      expect(decoded).toMatchObject({ ok: true, message });
    }
  });
});

describe('frames of a newer peer', () => {
  it('drops and counts fields that it does not know, nested ones too', () => {
    const newer = {
      ...report,
      colour: 'red',
      report: {
        ...(report as { report: object }).report,
        moods: [1, 2],
        probe: { ok: true, ttftMs: 1, consecutiveOk: 1, x: 1 },
      },
    };
    const decoded = decodeAgentMessage(packed(newer));
    expect(decoded).toMatchObject({ ok: true, unknownFields: 3 });
    expect(decoded.ok && 'colour' in decoded.message).toBe(false);
  });

  it('tells an unknown kind from a malformed frame', () => {
    expect(decodeAgentMessage(packed({ kind: 'greeting' }))).toMatchObject({
      ok: false,
      reason: 'unknown_kind',
    });
    expect(decodeAgentMessage(Uint8Array.of(0xc1, 9, 0, 0))).toMatchObject({
      ok: false,
      reason: 'unknown_kind',
    });
    expect(decodeAgentMessage(packed({ kind: 7 }))).toMatchObject({ reason: 'malformed' });
    expect(decodeAgentMessage(packed({ kind: 'toString' }))).toMatchObject({
      reason: 'unknown_kind',
    });
  });

  it('skips a longer prefix header and bytes after the prefix frame', () => {
    const { hex, message } = recorded.agent.find((frame) => frame.message.kind === 'prefix')!;
    const frame = bytesOf(hex);
    const longer = new Uint8Array(frame.length + 4 + 3);
    longer.set(frame.subarray(0, 28));
    longer.set(frame.subarray(28), 32);
    longer[2] = 32;
    expect(decodeAgentMessage(longer)).toEqual({ ok: true, message, unknownFields: 1 });
  });
});

const CURVE = {
  baseMs: 1,
  frontMsPerToken: 0,
  linearMsPerToken: 0.1,
  contextMsPerToken2: 0,
  stepTokens: 2_048,
};

describe('malformed frames', () => {
  const inner = (report as unknown as { report: Record<string, unknown> }).report;
  const spoilt: [string, unknown][] = [
    ['NaN', { ...inner, waitingPrefillMs: Number.NaN }],
    ['infinite figures', { ...inner, prefillTps: Number.POSITIVE_INFINITY }],
    ['negative figures', { ...inner, running: -3 }],
    ['a phase that is no text', { ...inner, phase: 7 }],
    ['a missing field', { ...inner, kappa: undefined }],
    ['text where a number belongs', { ...inner, itlMs: '12' }],
    ['a bigint beyond numbers', { ...inner, rank: 2n ** 63n }],
    ['too many models', { ...inner, models: Array.from({ length: 1_025 }, () => inner['models']) }],
  ];
  for (const [what, spoiltReport] of spoilt) {
    it(`refuses a report with ${what}`, () => {
      const frame = packed({ kind: 'report', report: spoiltReport });
      expect(decodeAgentMessage(frame)).toMatchObject({ ok: false, reason: 'malformed' });
    });
  }

  it('refuses figures so great that sums of them never come back, and divisors near 0', () => {
    const mean = { mean: 4, p5: 3, p95: 5 };
    const vast: [string, unknown][] = [
      ['figure', { ...inner, waitingPrefillMs: 1e300 }],
      ['coefficient', { ...inner, prefillCost: { ...CURVE, contextMsPerToken2: 1e200 } }],
      ['divisor', { ...inner, bytesPerToken: { ...mean, p95: 1e-300 } }],
    ];
    for (const [what, spoilt] of vast) {
      const frame = packed({ kind: 'report', report: spoilt });
      expect(decodeAgentMessage(frame), what).toMatchObject({ ok: false, reason: 'malformed' });
    }
    const fair = { ...inner, prefillCost: CURVE, bytesPerToken: mean };
    expect(decodeAgentMessage(packed({ kind: 'report', report: fair })).ok).toBe(true);
  });

  it('refuses a report with more names than a router keeps, and one that is too large', () => {
    const loras = Array.from({ length: 4_000 }, (_, at) => `l${at}`);
    const models = ['a', 'b', 'c'].map((id) => ({ id, maxModelLen: null, loras }));
    const told = (count: number) =>
      packed({ kind: 'report', report: { ...inner, models: models.slice(0, count) } });
    expect(decodeAgentMessage(told(2)).ok).toBe(true);
    expect(decodeAgentMessage(told(3))).toMatchObject({
      detail: 'report: report.models: too many names',
    });
    const padded = packed({ kind: 'report', report: inner, padding: 'x'.repeat(1_048_576) });
    expect(decodeAgentMessage(padded)).toMatchObject({ detail: 'message too large' });
  });

  it('refuses a run of prefixes that begins deeper than any chain', () => {
    const { hex } = recorded.agent.find((frame) => frame.message.kind === 'prefix')!;
    const frame = Buffer.from(hex, 'hex');
    const depthAt = 28 + frame.readUInt16LE(10) + frame.readUInt16LE(12) + 8;
    frame.writeUInt32LE(131_072, depthAt);
    expect(decodeAgentMessage(frame).ok).toBe(true);
    frame.writeUInt32LE(131_073, depthAt);
    expect(decodeAgentMessage(frame)).toMatchObject({ detail: 'a run deeper than any chain' });
  });

  it('takes a figure that rounding left a hair below 0 as 0', () => {
    const frame = packed({ kind: 'report', report: { ...inner, waitingPrefillMs: -1e-9 } });
    expect(decodeAgentMessage(frame)).toMatchObject({
      ok: true,
      message: { report: { waitingPrefillMs: 0 } },
    });
  });

  it('refuses chains that are not whole hashes', () => {
    const sent = recorded.router.find(({ message }) => message.kind === 'sent')!.message;
    const chains = [{ hashes: Buffer.alloc(12), endLow: 0, endHigh: 0, turnEnds: Buffer.alloc(0) }];
    expect(decodeRouterMessage(packed({ ...sent, chains }))).toMatchObject({ reason: 'malformed' });
  });

  it('refuses extension types, deep nesting and foreign map keys before decoding', () => {
    const records = new Packr({ useRecords: true }).pack({
      kind: 'bye',
      replica: 'a',
      reason: 'drained',
    });
    expect(decodeAgentMessage(records)).toMatchObject({ reason: 'malformed' });
    expect(decodeAgentMessage(packed({ kind: 'bye', at: new Date(0) }))).toMatchObject({
      reason: 'malformed',
    });
    const deep = Buffer.concat([Buffer.alloc(1_000_000, 0x91), Buffer.from([0xc0])]);
    expect(decodeAgentMessage(deep)).toMatchObject({ reason: 'malformed' });
    expect(decodeAgentMessage(Buffer.from('81c0c0', 'hex'))).toMatchObject({ reason: 'malformed' });
    const proto = packed({ kind: 'fence', replica: 'a', ['__proto__x']: 1 });
    expect(decodeRouterMessage(proto)).toMatchObject({ ok: true, unknownFields: 1 });
  });

  it('refuses a count that the bytes cannot hold', () => {
    expect(decodeAgentMessage(Buffer.from('dfffffffff', 'hex'))).toMatchObject({ ok: false });
    const { hex } = recorded.agent.find((frame) => frame.message.kind === 'prefix')!;
    const lying = Buffer.from(hex, 'hex');
    lying.writeUInt32LE(200_000, 16);
    expect(decodeAgentMessage(lying)).toMatchObject({ ok: false, reason: 'malformed' });
  });

  it('never throws on a frame cut at any point', () => {
    for (const { hex } of [...recorded.agent, ...recorded.router]) {
      const frame = bytesOf(hex);
      for (let length = 0; length < frame.length; length += 1) {
        const cut = frame.subarray(0, length);
        expect(decodeAgentMessage(cut).ok).toBe(false);
        expect(decodeRouterMessage(cut).ok).toBe(false);
      }
    }
  });

  it('never throws on a frame with changed bytes', () => {
    const frames = [...recorded.agent, ...recorded.router].map(({ hex }) => hex);
    const edits = fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(fc.constantFrom(...frames), edits, (hex, changes) => {
        const frame = bytesOf(hex);
        for (const [at, value] of changes) frame[at % frame.length] = value;
        decodeAgentMessage(frame);
        decodeRouterMessage(frame);
      }),
      { numRuns: 2_000 },
    );
  });

  it('never throws on random bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (frame) => {
        decodeAgentMessage(frame);
        decodeRouterMessage(frame);
      }),
      { numRuns: 2_000 },
    );
  });
});

describe('bounds of encoding', () => {
  it('leaves chains out of a lease snapshot that would pass the frame limit', () => {
    const leases = recorded.router.find(({ message }) => message.kind === 'leases')!.message;
    if (leases.kind !== 'leases') throw new Error('no leases');
    const [lease] = leases.open;
    const chain = {
      hashes: new Uint32Array(200_000),
      endLow: 0,
      endHigh: 0,
      turnEnds: new Uint32Array(0),
    };
    const open = Array.from({ length: 30 }, () => ({ ...lease!, chains: [chain] }));
    const frame = encodeRouterMessage({ ...leases, open });
    expect(frame.length).toBeLessThan(MAX_FRAME_BYTES);
    const decoded = decodeRouterMessage(frame);
    expect(decoded).toMatchObject({ ok: true });
    expect(decoded.ok && decoded.message.kind === 'leases' && decoded.message.open.length).toBe(30);
  });

  it('cuts a chain that is too long: the beginning of a chain is a chain', () => {
    const sent = recorded.router.find(({ message }) => message.kind === 'sent')!.message;
    if (sent.kind !== 'sent') throw new Error('no sent');
    const hashes = Uint32Array.from({ length: 300_000 }, (_, index) => index);
    const [chain] = sent.chains;
    const frame = encodeRouterMessage({ ...sent, chains: [{ ...chain!, hashes }] });
    const decoded = decodeRouterMessage(frame);
    if (!decoded.ok || decoded.message.kind !== 'sent') throw new Error('not decoded');
    expect(decoded.message.chains[0]!.hashes).toEqual(hashes.subarray(0, 262_144));
  });

  it('cuts the chains of a request that has too many prompts: a client cannot end a link', () => {
    const sent = recorded.router.find(({ message }) => message.kind === 'sent')!.message;
    const leases = recorded.router.find(({ message }) => message.kind === 'leases')!.message;
    if (sent.kind !== 'sent' || leases.kind !== 'leases') throw new Error('not recorded');
    const chains = Array.from({ length: MAX_CHAINS + 1 }, () => sent.chains[0]!);
    const open = [{ ...leases.open[0]!, chains }];
    for (const message of [
      { ...sent, chains },
      { ...leases, open },
    ]) {
      const decoded = decodeRouterMessage(encodeRouterMessage(message));
      expect(decoded).toMatchObject({ ok: true });
      const facts = decoded.ok && 'open' in decoded.message ? decoded.message.open[0] : null;
      const cut = facts ?? (decoded.ok && 'chains' in decoded.message ? decoded.message : null);
      expect(cut?.chains).toHaveLength(MAX_CHAINS);
    }
  });
});

describe('a lease of several requests to the engine', () => {
  const sent = recorded.router.find(({ message }) => message.kind === 'sent')!.message;
  const told = (requests: unknown): unknown => {
    const decoded = decodeRouterMessage(packed({ ...sent, chains: [], requests }));
    if (!decoded.ok) return decoded.reason;
    return 'requests' in decoded.message ? decoded.message.requests : 'absent';
  };

  it('says how many; one of a router that does not is one', () => {
    if (sent.kind !== 'sent') throw new Error('no sent');
    expect(told(64)).toBe(64);
    expect([told(0), told(1.5), told(MAX_LEASE_REQUESTS + 1)]).toEqual(Array(3).fill('malformed'));
    const decoded = decodeRouterMessage(encodeRouterMessage(sent));
    expect(decoded.ok && 'requests' in decoded.message).toBe(false);
    const batch = decodeRouterMessage(encodeRouterMessage({ ...sent, requests: 7 }));
    expect(batch).toMatchObject({ ok: true, message: { requests: 7 } });
    const vast = decodeRouterMessage(encodeRouterMessage({ ...sent, requests: 1e12 }));
    expect(vast).toMatchObject({ ok: true, message: { requests: MAX_LEASE_REQUESTS } });
  });
});

describe('what a report says since version 1', () => {
  const inner = (report as unknown as { report: Record<string, unknown> }).report;
  const decoded = (change: Record<string, unknown>): unknown => {
    const frame = packed({ kind: 'report', report: { ...inner, ...change } });
    const read = decodeAgentMessage(frame);
    return read.ok ? (read.message as { report: unknown }).report : read;
  };

  it('is read as it was sent', () => {
    const said = {
      degradedFor: 'slow',
      slowRatio: 3.5,
      progress: { stage: 'weights', ratio: 0.5 },
      gpus: {
        name: 'H200',
        count: 8,
        lost: 1,
        memoryTotalBytes: 1e12,
        memoryUsedBytes: null,
        temperatureC: -3,
        utilisationRatio: 0.97,
        throttled: true,
      },
      costError: { p50: 0.05, p90: 0.3, bias: -0.04 },
      kvCachedTokens: 65_000,
      absent: ['kvUsageRatio', 'preemptionsTotal'],
    };
    expect(decoded(said)).toMatchObject(said);
  });

  it('is no reason where a newer agent names one that this router does not know', () => {
    expect(decoded({ degradedFor: 'moonlight' })).toMatchObject({ degradedFor: null });
  });
});
