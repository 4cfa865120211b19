// Neighbouring releases understand each other: frames that earlier code wrote are read to what that code meant by them, and
// what a newer peer adds is left alone and counted. Recorded by `npm run record:frames`.

import { describe, expect, it, test } from 'vitest';
import {
  pack,
  recordings,
  unpack,
  withUnknownFields,
  type Decode,
  type RecordedFrame,
} from '../../test/fixtures/frames/recorded.ts';
import {
  decodeAgentMessage,
  decodeRouterMessage,
  encodeAgentMessage,
  encodeRouterMessage,
} from './codec.ts';
import { AGENT_SAMPLES, ROUTER_SAMPLES } from '../../test/fixtures/frames/samples.ts';

function bytesOf(hex: string): Uint8Array {
  return Uint8Array.from(Buffer.from(hex, 'hex'));
}

/** What says nothing: a field of today that an older peer cannot have sent must have one of these. */
function saysNothing(value: unknown): boolean {
  return value === null || value === undefined || (Array.isArray(value) && value.length === 0);
}

/** Paths at which today's reading is another than the recorded one. */
function differences(recorded: unknown, read: unknown, path = ''): string[] {
  if (!isMap(recorded) || !isMap(read)) {
    if (Array.isArray(recorded) && Array.isArray(read) && recorded.length === read.length) {
      return recorded.flatMap((each, at) => differences(each, read[at], `${path}[${at}]`));
    }
    return Object.is(recorded, read) || sameWords(recorded, read) ? [] : [path];
  }
  const changed = Object.keys(recorded).flatMap((key) =>
    differences(recorded[key], read[key], `${path}.${key}`),
  );
  const invented = Object.keys(read).filter(
    (key) => !Object.hasOwn(recorded, key) && !saysNothing(read[key]),
  );
  return [...changed, ...invented.map((key) => `${path}.${key} is made up`)];
}

function isMap(value: unknown): value is Record<string, unknown> {
  return (
    typeof value === 'object' &&
    value !== null &&
    !Array.isArray(value) &&
    !ArrayBuffer.isView(value)
  );
}

function sameWords(one: unknown, other: unknown): boolean {
  if (!(one instanceof Uint32Array) || !(other instanceof Uint32Array)) return false;
  return one.length === other.length && one.every((word, at) => word === other[at]);
}

describe.each([...recordings()])('frames of %s', (_name, recording) => {
  const sides: [string, readonly RecordedFrame[], Decode][] = [
    ['an agent', recording.agent, decodeAgentMessage],
    ['a router', recording.router, decodeRouterMessage],
  ];
  describe.each(sides)('from %s', (_side, frames, decode) => {
    it.each(frames.map((each) => [each.name, each] as const))('%s', (_frame, { hex, message }) => {
      const read = decode(bytesOf(hex));
      expect(read).toMatchObject({ ok: true, unknownFields: 0 });
      expect(read.ok ? differences(message, read.message) : ['refused']).toEqual([]);
    });
  });

  test('are of every kind that today’s code sends, or did not exist', () => {
    const recorded = new Set(
      [...recording.agent, ...recording.router].map(({ message }) => message['kind']),
    );
    const kinds = [...AGENT_SAMPLES, ...ROUTER_SAMPLES].map(({ kind }) => kind);
    const missing = kinds.filter((kind) => !recorded.has(kind)).toSorted();
    expect(missing).toEqual(LATER_KINDS[recording.commit]);
  });
});

/** Kinds that a recorded commit did not have yet. */
const LATER_KINDS: Readonly<Record<string, readonly string[]>> = {
  '623ff20': ['heard', 'pace'],
  d1e7269: ['pace'],
};

describe('a newer peer', () => {
  const agent = AGENT_SAMPLES.filter(({ kind }) => kind !== 'prefix');
  const frames: [string, Uint8Array, Decode][] = [
    ...agent.map((sample): [string, Uint8Array, Decode] => [
      sample.kind,
      encodeAgentMessage(sample),
      decodeAgentMessage,
    ]),
    ...ROUTER_SAMPLES.map((sample): [string, Uint8Array, Decode] => [
      sample.kind,
      encodeRouterMessage(sample),
      decodeRouterMessage,
    ]),
  ];

  test.each(frames)('adds fields to %s: they are left out and counted', (kind, frame, decode) => {
    const plain = decode(frame);
    const newer = withUnknownFields(frame);
    const read = decode(newer.frame);
    if (!plain.ok || !read.ok) throw new Error(kind);
    expect(newer.added).toBeGreaterThan(0);
    expect(read.unknownFields).toBe(newer.added);
    expect(differences(plain.message, read.message)).toEqual([]);
  });

  test.each([
    ['map', pack({ kind: 'zzNewer', replica: '10.0.0.7:8000' })],
    ['binary frame', Uint8Array.of(0xc1, 0x7f, 1, 2, 3)],
  ])('sends a %s of a kind that nobody knows: it is told from a broken one', (_form, frame) => {
    expect(decodeAgentMessage(frame)).toMatchObject({ ok: false, reason: 'unknown_kind' });
    expect(decodeRouterMessage(frame)).toMatchObject({ ok: false, reason: 'unknown_kind' });
  });

  test('names members that a closed set has not: the most careful reading', () => {
    const report = AGENT_SAMPLES.find(({ kind }) => kind === 'report');
    const inner = unpack(encodeAgentMessage(report!))['report'] as object;
    const told = pack({ kind: 'report', report: { ...inner, phase: 'zz', degradedFor: 'zz' } });
    expect(decodeAgentMessage(told)).toMatchObject({
      ok: true,
      message: { report: { phase: 'starting', degradedFor: null } },
    });
    expect(decodeAgentMessage(pack({ kind: 'bye', replica: 'a:1', reason: 'zz' }))).toMatchObject({
      ok: true,
      message: { reason: 'removed' },
    });
    const ended = unpack(encodeRouterMessage(ROUTER_SAMPLES.find(({ kind }) => kind === 'ended')!));
    expect(decodeRouterMessage(pack({ ...ended, outcome: 'zz' }))).toMatchObject({
      ok: true,
      message: { outcome: 'failed' },
    });
  });
});
