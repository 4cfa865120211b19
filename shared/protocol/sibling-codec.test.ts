import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import fixture from './fixtures/sibling-version-1.json' with { type: 'json' };
import type { PoolId, ReplicaId, RouterId } from '../model/ids.ts';
import { pack, unpack, withUnknownFields } from '../../test/fixtures/frames/recorded.ts';
import { MAX_SIBLING_FRAME_BYTES } from './limits.ts';
import { decodeSiblingChild, decodeSiblingParent, encodeSiblingMessage } from './sibling-codec.ts';
import {
  MAX_HELD,
  MAX_OPENED,
  type SiblingChildMessage,
  type SiblingHeldFirst,
  type SiblingSend,
  type SiblingWelcome,
} from './sibling-messages.ts';

const one: SiblingSend = {
  ...{ no: 7, replica: '10.0.0.7:8000' as ReplicaId, rank: 1, seq: 42 },
  ...{ promptTokens: 1_200, uncachedTokens: 200, contextTokens2: 220_000.5 },
};
const send: SiblingSend = { ...one, requests: 2 };

const first: SiblingHeldFirst = {
  ...{ tenant: 'acme', priority: -1, returning: true, ageMs: 1_200.5, patienceMs: 15_000 },
};

const CHILD: readonly SiblingChildMessage[] = [
  {
    ...{ kind: 'hello', protocol: [1, 1], features: [], routerId: 'router-a' as RouterId },
    ...{ software: 'spillway/0.1.0', region: 'fra' },
  },
  { kind: 'sends', anew: true, opened: [send], past: [1, 2] },
  { kind: 'sends', opened: [{ ...one, seq: null }], past: [] },
  {
    ...{ kind: 'sends', opened: [{ ...one, growthTokens: 264.5, aged: true }], past: [] },
    held: [{ pool: 'chat' as PoolId, first }, { pool: 'code' as PoolId }],
  },
  { kind: 'sends', anew: true, opened: [], past: [], held: [] },
];

const WELCOME: SiblingWelcome = {
  ...{ kind: 'welcome', protocol: 1, features: ['x'], routerId: 'router-b' as RouterId },
  ...{ software: 'spillway/0.1.0', siblings: ['ws://10.0.0.2:8081'] },
};

const bytesOf = (hex: string): Uint8Array => Uint8Array.from(Buffer.from(hex, 'hex'));
const read = (message: SiblingChildMessage): SiblingChildMessage => {
  const decoded = decodeSiblingChild(encodeSiblingMessage(message));
  if (!decoded.ok) throw new Error(decoded.detail);
  return decoded.message;
};

describe('frames between routers of a region', () => {
  test('say what was said', () => {
    for (const message of CHILD) expect(read(message)).toEqual(message);
    const welcome = decodeSiblingParent(encodeSiblingMessage(WELCOME));
    expect(welcome).toEqual({ ok: true, message: WELCOME, unknownFields: 0 });
  });

  test('of the first version are read to what they meant', () => {
    for (const { hex, message } of fixture.child) {
      expect(decodeSiblingChild(bytesOf(hex))).toMatchObject({ ok: true, message });
    }
    const { hex, message } = fixture.welcome;
    expect(decodeSiblingParent(bytesOf(hex))).toMatchObject({ ok: true, message });
  });

  test('of a newer router: its fields are left out and counted, its kinds told from broken ones', () => {
    for (const message of CHILD) {
      const { frame, added } = withUnknownFields(encodeSiblingMessage(message));
      const decoded = decodeSiblingChild(frame);
      expect(decoded).toMatchObject({ ok: true, unknownFields: added });
      expect(added).toBeGreaterThan(0);
      if (decoded.ok) expect(decoded.message).toEqual(message);
    }
    const newer = pack({ kind: 'zzNewer' });
    expect(decodeSiblingChild(newer)).toMatchObject({ ok: false, reason: 'unknown_kind' });
    expect(decodeSiblingParent(newer)).toMatchObject({ ok: false, reason: 'unknown_kind' });
  });

  test('keep within a frame, however long the names are', () => {
    const replica = 'r'.repeat(512) as ReplicaId;
    const opened = Array.from({ length: MAX_OPENED }, (_, no) => ({ ...send, no, replica }));
    const past = Array.from({ length: MAX_OPENED }, (_, no) => 2 ** 40 + no);
    const held = Array.from({ length: MAX_HELD }, () => ({
      pool: 'p'.repeat(512) as PoolId,
      first: { ...first, tenant: 't'.repeat(512) },
    }));
    const frame = encodeSiblingMessage({ kind: 'sends', anew: true, opened, past, held });
    expect(frame.length).toBeLessThan(MAX_SIBLING_FRAME_BYTES);
    expect(decodeSiblingChild(frame).ok).toBe(true);
  });

  test('are read or refused whatever their bytes are', () => {
    const frame = encodeSiblingMessage(CHILD[1] as SiblingChildMessage);
    fc.assert(
      fc.property(fc.nat(frame.length - 1), fc.nat(255), (at, byte) => {
        const broken = Uint8Array.from(frame);
        broken[at] = byte;
        const decoded = decodeSiblingChild(broken);
        if (!decoded.ok || decoded.message.kind !== 'sends') return;
        for (const { uncachedTokens, no } of decoded.message.opened) {
          expect(uncachedTokens).toBeGreaterThanOrEqual(0);
          expect(Number.isSafeInteger(no)).toBe(true);
        }
      }),
    );
    for (let end = 0; end < frame.length; end += 1) {
      expect(decodeSiblingChild(frame.subarray(0, end)).ok).toBe(false);
    }
    expect(unpack(frame)['kind']).toBe('sends');
  });
});
