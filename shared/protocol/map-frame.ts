// Frames that are plain msgpack maps with a `kind`, whichever link they are of.
//
// Decoding never throws. Unknown fields are dropped and counted, unknown kinds are told apart from malformed ones: the
// first are a newer peer, the second a broken one.

import { Packr } from 'msgpackr';
import type { z } from 'zod';
import { MAX_FRAME_BYTES } from './limits.ts';
import { plainFault } from './plain-msgpack.ts';

export type Decoded<T> =
  | {
      readonly ok: true;
      readonly message: T;
      /** Fields that this version does not know. */
      readonly unknownFields: number;
    }
  | {
      readonly ok: false;
      readonly reason: 'unknown_kind' | 'malformed';
      readonly detail: string;
    };

const packr = new Packr({
  useRecords: false,
  mapsAsObjects: true,
  variableMapSize: true,
  encodeUndefinedAsNil: true,
  int64AsType: 'number',
});

export function packMap(message: unknown): Uint8Array {
  return packr.pack(message);
}

/** By the `kind` of the message. */
export type Schemas<T> = Readonly<Record<string, z.ZodType<T>>>;

export function decodeMap<T>(frame: Uint8Array, schemas: Schemas<T>): Decoded<T> {
  if (frame.length > MAX_FRAME_BYTES) return refused('malformed', 'frame too large');
  const fault = plainFault(frame);
  if (fault !== null) return refused('malformed', fault);
  const raw = unpack(frame);
  if (!isRecord(raw) || typeof raw['kind'] !== 'string') return refused('malformed', 'no kind');
  const kind = raw['kind'];
  const schema = Object.hasOwn(schemas, kind) ? schemas[kind] : undefined;
  if (schema === undefined) return refused('unknown_kind', kind.slice(0, 64));
  const parsed = schema.safeParse(raw);
  if (!parsed.success) return refused('malformed', `${kind}: ${firstIssue(parsed.error)}`);
  return { ok: true, message: parsed.data, unknownFields: countDropped(raw, parsed.data) };
}

export function refused(reason: 'unknown_kind' | 'malformed', detail: string): Decoded<never> {
  return { ok: false, reason, detail };
}

/** Undefined where the decoder objects to what the scan let pass. */
function unpack(frame: Uint8Array): unknown {
  try {
    return packr.unpack(frame);
  } catch {
    // The value carries nothing that the caller could tell its peer beyond "malformed".
    return undefined;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function firstIssue(error: z.ZodError): string {
  const issue = error.issues[0];
  return issue === undefined ? 'invalid' : `${issue.path.join('.')}: ${issue.message}`;
}

/** Fields of `raw` that parsing dropped. Binary fields have been transformed and have no members. */
function countDropped(raw: unknown, parsed: unknown): number {
  if (Array.isArray(raw) && Array.isArray(parsed)) {
    let dropped = 0;
    for (let index = 0; index < raw.length; index += 1) {
      if (typeof raw[index] !== 'object') break;
      dropped += countDropped(raw[index], parsed[index]);
    }
    return dropped;
  }
  if (!isRecord(raw) || !isRecord(parsed) || ArrayBuffer.isView(raw)) return 0;
  let dropped = 0;
  for (const key in raw) {
    const value = raw[key];
    const kept = parsed[key];
    if (kept === undefined && !Object.hasOwn(parsed, key)) dropped += 1;
    else if (typeof value === 'object' && value !== null) dropped += countDropped(value, kept);
  }
  return dropped;
}
