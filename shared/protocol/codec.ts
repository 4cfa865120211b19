// Frames of the link: plain msgpack maps with a `kind`, and the binary prefix frame. Parsed once here, typed inside.
//
// Decoding never throws. Unknown fields are dropped and counted, unknown kinds are told apart from malformed ones:
// the first are a newer peer, the second a broken one. Encoding keeps below MAX_FRAME_BYTES: what routers remember
// of prefixes and the chains of open leases may be left out, because knowing less of a cache is safe.

import { Packr } from 'msgpackr';
import type { z } from 'zod';
import {
  MAX_CHAIN_CHUNKS,
  MAX_CHAINS,
  MAX_FRAME_BYTES,
  MAX_LEASE_REQUESTS,
  MAX_OPEN_LEASES,
  MAX_REPORT_BYTES,
} from './limits.ts';
import type {
  AgentMessage,
  ChainFacts,
  LeaseFacts,
  Leases,
  PrefixRun,
  RouterMessage,
  Welcome,
} from './messages.ts';
import { plainFault } from './plain-msgpack.ts';
import { BINARY_MARK, decodePrefix, encodePrefix, FRAME_PREFIX } from './prefix-frame.ts';
import { AGENT_SCHEMAS, ROUTER_SCHEMAS } from './schemas.ts';
import { wordsToBytes } from './words.ts';

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

export function encodeAgentMessage(message: AgentMessage): Uint8Array {
  return message.kind === 'prefix' ? encodePrefix(message) : packr.pack(message);
}

export function encodeRouterMessage(message: RouterMessage): Uint8Array {
  const frame = packr.pack(wireForm(message));
  return frame.length <= MAX_FRAME_BYTES ? frame : packr.pack(wireForm(lightened(message)));
}

export function decodeAgentMessage(frame: Uint8Array): Decoded<AgentMessage> {
  if (frame[0] !== BINARY_MARK) {
    if (frame.length > MAX_REPORT_BYTES) return refused('malformed', 'message too large');
    return decodeMap<AgentMessage>(frame, AGENT_SCHEMAS);
  }
  if (frame[1] !== FRAME_PREFIX) return refused('unknown_kind', `binary frame type ${frame[1]}`);
  if (frame.length > MAX_FRAME_BYTES) return refused('malformed', 'frame too large');
  const decoded = decodePrefix(frame);
  if (decoded.message === null) return refused('malformed', decoded.fault);
  return { ok: true, message: decoded.message, unknownFields: decoded.skippedBytes > 0 ? 1 : 0 };
}

export function decodeRouterMessage(frame: Uint8Array): Decoded<RouterMessage> {
  if (frame[0] === BINARY_MARK) return refused('unknown_kind', `binary frame type ${frame[1]}`);
  return decodeMap<RouterMessage>(frame, ROUTER_SCHEMAS);
}

type Schemas<T> = Readonly<Record<string, z.ZodType<T>>>;

function decodeMap<T>(frame: Uint8Array, schemas: Schemas<T>): Decoded<T> {
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

function refused(reason: 'unknown_kind' | 'malformed', detail: string): Decoded<never> {
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

function wireForm(message: RouterMessage): unknown {
  switch (message.kind) {
    case 'sent':
      return wireLease(message);
    case 'leases':
      return { ...message, open: message.open.slice(0, MAX_OPEN_LEASES).map(wireLease) };
    case 'welcome':
      return {
        ...message,
        resume: message.resume.map((state) => ({ ...state, runs: state.runs.map(wireRun) })),
      };
    default:
      return message;
  }
}

/** A client decides how many prompts and answers its request has, so they are cut here, never refused there. */
function wireLease(lease: LeaseFacts): object {
  const { requests } = lease;
  return {
    ...lease,
    ...(requests === undefined ? {} : { requests: Math.min(requests, MAX_LEASE_REQUESTS) }),
    chains: lease.chains.slice(0, MAX_CHAINS).map(wireChain),
  };
}

function wireChain(chain: ChainFacts): unknown {
  return {
    ...chain,
    hashes: wordsToBytes(chain.hashes.subarray(0, MAX_CHAIN_CHUNKS * 2)),
    turnEnds: wordsToBytes(chain.turnEnds.subarray(0, MAX_CHAIN_CHUNKS * 2)),
  };
}

function wireRun(run: PrefixRun): unknown {
  return { ...run, hashes: wordsToBytes(run.hashes.subarray(0, MAX_CHAIN_CHUNKS * 2)) };
}

function lightened(message: RouterMessage): RouterMessage {
  if (message.kind === 'leases') return withoutChains(message);
  if (message.kind === 'sent') return { ...message, chains: [] };
  return message.kind === 'welcome' ? withoutIndex(message) : message;
}

function withoutChains(message: Leases): Leases {
  return { ...message, open: message.open.map((lease) => ({ ...lease, chains: [] })) };
}

function withoutIndex(message: Welcome): Welcome {
  return {
    ...message,
    resume: message.resume.map((state) => ({ ...state, runs: [], leaves: [] })),
  };
}
