// Frames of the link between an agent and a router: maps (map-frame.ts) and the binary prefix frame. Parsed once here,
// typed inside.
//
// Encoding keeps below MAX_FRAME_BYTES: what routers remember of prefixes and the chains of open leases may be left out,
// because knowing less of a cache is safe.

import {
  MAX_CHAIN_CHUNKS,
  MAX_CHAINS,
  MAX_FRAME_BYTES,
  MAX_LEASE_REQUESTS,
  MAX_OPEN_LEASES,
  MAX_REPORT_BYTES,
} from './limits.ts';
import { decodeMap, packMap, refused, type Decoded } from './map-frame.ts';
import type {
  AgentMessage,
  ChainFacts,
  LeaseFacts,
  Leases,
  PrefixRun,
  RouterMessage,
  Welcome,
} from './messages.ts';
import { plainReader } from './plain-reader.ts';
import { BINARY_MARK, decodePrefix, encodePrefix, FRAME_PREFIX } from './prefix-frame.ts';
import { AGENT_SCHEMAS, ROUTER_SCHEMAS } from './schemas.ts';
import { wordsToBytes } from './words.ts';

/** Reports are most of what a router hears. */
const readReport = plainReader<AgentMessage>(AGENT_SCHEMAS.report);

export function encodeAgentMessage(message: AgentMessage): Uint8Array {
  return message.kind === 'prefix' ? encodePrefix(message) : packMap(message);
}

export function encodeRouterMessage(message: RouterMessage): Uint8Array {
  const frame = packMap(wireForm(message));
  return frame.length <= MAX_FRAME_BYTES ? frame : packMap(wireForm(lightened(message)));
}

export function decodeAgentMessage(frame: Uint8Array): Decoded<AgentMessage> {
  if (frame[0] !== BINARY_MARK) {
    if (frame.length > MAX_REPORT_BYTES) return refused('malformed', 'message too large');
    const report = readReport(frame);
    if (report !== null) return { ok: true, message: report, unknownFields: 0 };
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
  const chains = lease.chains.slice(0, MAX_CHAINS).map(wireChain);
  if (requests === undefined) return { ...lease, chains };
  return { ...lease, chains, requests: Math.min(requests, MAX_LEASE_REQUESTS) };
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
