// One router of a large region, recorded and replayed: what its links and its decisions cost, without
// the rest of the region in the same process.
//
// The recording is every event that the router's core was given in the virtual world, in order, with
// agents' and siblings' messages as frames. The replay decodes the frames, gives the events to a fresh core at the
// same times, and encodes what it sends; equal randomness makes it decide as it did.

import { seededRandom } from '../../shared/lib/random.ts';
import type { LinkId, RouterId } from '../../shared/model/ids.ts';
import { REGIONAL_DEFAULTS } from '../../shared/model/settings.ts';
import {
  decodeAgentMessage,
  encodeAgentMessage,
  encodeRouterMessage,
} from '../../shared/protocol/codec.ts';
import { decodeSiblingChild, encodeSiblingMessage } from '../../shared/protocol/sibling-codec.ts';
import { RegionalCore } from '../../router/regional/core.ts';
import type { RouterEffect, RouterEvent } from '../../router/regional/events.ts';
import type { RouterHost } from '../../sim/world/router-host.ts';
import { WORLD_POOL } from '../../sim/world/world.ts';

export type Recorded =
  | { readonly atMs: number; readonly event: RouterEvent }
  | { readonly atMs: number; readonly link: LinkId; readonly frame: Uint8Array }
  | { readonly atMs: number; readonly link: LinkId; readonly siblingFrame: Uint8Array };

const SEED = 11;

function coreOf(name: string): RegionalCore {
  return new RegionalCore({
    routerId: name as RouterId,
    software: 'bench',
    config: {
      settings: REGIONAL_DEFAULTS,
      pools: [{ id: WORLD_POOL, models: [], aliases: {} }],
      siblings: [],
    },
    random: seededRandom(SEED),
    wallMs: () => 0,
  });
}

/** Puts a core of known randomness into the router, before its first event, and keeps what it is given. */
export function record(router: RouterHost): Recorded[] {
  const events: Recorded[] = [];
  const core = coreOf(router.id);
  const handle = core.handle.bind(core);
  core.handle = (event: RouterEvent, nowMs: number): RouterEffect[] => {
    if (event.kind === 'message') {
      events.push({ atMs: nowMs, link: event.link, frame: encodeAgentMessage(event.message) });
    } else if (event.kind === 'siblingMessage') {
      const siblingFrame = encodeSiblingMessage(event.message);
      events.push({ atMs: nowMs, link: event.link, siblingFrame });
    } else {
      events.push({ atMs: nowMs, event });
    }
    return handle(event, nowMs);
  };
  router.core = core;
  return events;
}

export interface ReplayFigures {
  /** ms of each event by what it was; decoding and encoding of links' messages by themselves. */
  readonly ms: ReadonlyMap<string, readonly number[]>;
  readonly cpuMs: number;
  readonly seconds: number;
  readonly sentBytes: number;
  readonly receivedBytes: number;
  /** Longest single event, ms. */
  readonly longestMs: number;
}

/** Only what came from `fromMs` on is measured. */
export function replay(name: string, events: readonly Recorded[], fromMs: number): ReplayFigures {
  const core = coreOf(name);
  const meter = new Meter();
  let measuring = false;
  let startMs = 0;
  let cpu = process.cpuUsage();
  for (const one of events) {
    if (!measuring && one.atMs >= fromMs) {
      measuring = true;
      startMs = one.atMs;
      meter.reset();
      cpu = process.cpuUsage();
    }
    step(core, one, meter);
  }
  const { user, system } = process.cpuUsage(cpu);
  const seconds = ((events.at(-1)?.atMs ?? 0) - startMs) / 1_000;
  const { ms, sentBytes, receivedBytes, longestMs } = meter;
  return {
    ...{ ms, cpuMs: (user + system) / 1_000, seconds },
    ...{ sentBytes, receivedBytes, longestMs },
  };
}

function step(core: RegionalCore, one: Recorded, meter: Meter): void {
  const begun = performance.now();
  const { event, kind, bytes } = eventOf(one);
  meter.receivedBytes += bytes;
  const decodedAt = performance.now();
  const effects = core.handle(event, one.atMs);
  core.nextWakeMs();
  const handledAt = performance.now();
  for (const effect of effects) meter.sentBytes += sentBytes(effect);
  const encodedAt = performance.now();
  meter.add('decode', decodedAt - begun);
  meter.add(kind, handledAt - decodedAt);
  meter.add('encode', encodedAt - handledAt);
  meter.longestMs = Math.max(meter.longestMs, encodedAt - begun);
}

function eventOf(one: Recorded): { event: RouterEvent; kind: string; bytes: number } {
  if ('event' in one) return { event: one.event, kind: one.event.kind, bytes: 0 };
  if ('siblingFrame' in one) {
    const decoded = decodeSiblingChild(one.siblingFrame);
    if (!decoded.ok || decoded.message.kind === 'hello') throw new Error('not a message');
    const event = { kind: 'siblingMessage', link: one.link, message: decoded.message } as const;
    return { event, kind: 'siblingMessage', bytes: one.siblingFrame.length };
  }
  const decoded = decodeAgentMessage(one.frame);
  if (!decoded.ok || decoded.message.kind === 'hello') throw new Error('not a message');
  const event = { kind: 'message', link: one.link, message: decoded.message } as const;
  return { event, kind: decoded.message.kind, bytes: one.frame.length };
}

/** What all siblings are told is encoded once. */
function sentBytes(effect: RouterEffect): number {
  if (effect.kind === 'send') return encodeRouterMessage(effect.message).length;
  if (effect.kind !== 'tellSiblings' && effect.kind !== 'sendSibling') return 0;
  return encodeSiblingMessage(effect.message).length;
}

class Meter {
  readonly ms = new Map<string, number[]>();
  sentBytes = 0;
  receivedBytes = 0;
  longestMs = 0;

  add(kind: string, ms: number): void {
    const own = this.ms.get(kind);
    if (own === undefined) this.ms.set(kind, [ms]);
    else own.push(ms);
  }

  reset(): void {
    this.ms.clear();
    this.sentBytes = 0;
    this.receivedBytes = 0;
    this.longestMs = 0;
  }
}
