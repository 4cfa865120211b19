// The GPUs of one engine from reading to reading: which are missing that were there before.
//
// A GPU is missing when the driver calls it lost, or when a reading that works no longer lists it. A reading that does
// not work (no tool, no driver, a time-out) says nothing: which GPUs there are stands, what they do is unknown.

import type { GpuSummary } from '../../shared/model/report.ts';

/** One GPU as the driver tells of it. `null` is what it does not tell. */
export interface GpuFacts {
  readonly index: number;
  readonly uuid: string;
  readonly name: string | null;
  readonly memoryTotalBytes: number | null;
  readonly memoryUsedBytes: number | null;
  readonly temperatureC: number | null;
  /** 0..1 */
  readonly utilisationRatio: number | null;
  readonly powerW: number | null;
  /** Its clocks are lowered for heat, power or the hardware's sake. */
  readonly throttled: boolean | null;
  /** Listed, and gone: fallen off the bus, or in need of a reset. */
  readonly lost: boolean;
}

export type GpuReading =
  | { readonly kind: 'gpus'; readonly gpus: readonly GpuFacts[] }
  /** The driver knows that a GPU is gone, and cannot tell of the others. */
  | { readonly kind: 'lost' }
  /** Nothing is known: no tool, no driver, no answer in time. */
  | { readonly kind: 'unknown' };

/** What changes from reading to reading. */
const UNREAD = {
  memoryUsedBytes: null,
  temperatureC: null,
  utilisationRatio: null,
  throttled: null,
} as const satisfies Partial<GpuSummary>;

/** A machine holds fewer. */
const MAX_GPUS = 64;

export class GpuPresence {
  private readonly seen = new Set<string>();
  private last: GpuSummary | null = null;

  /** Null until a reading has told. */
  get summary(): GpuSummary | null {
    return this.last;
  }

  get missing(): boolean {
    return this.last !== null && this.last.lost > 0;
  }

  /** `uuids`: those of the engine; null for all of the machine. */
  take(reading: GpuReading, uuids: readonly string[] | null): void {
    if (reading.kind !== 'gpus') {
      const { last } = this;
      const least = reading.kind === 'lost' ? 1 : 0;
      if (last !== null) this.last = { ...last, ...UNREAD, lost: Math.max(least, last.lost) };
      return;
    }
    if (uuids !== null) this.keepOnly(uuids);
    const own = reading.gpus.filter(({ uuid }) => uuids === null || uuids.includes(uuid));
    for (const { uuid, lost } of own) if (!lost && this.seen.size < MAX_GPUS) this.seen.add(uuid);
    const present = own.filter(({ lost }) => !lost);
    const there = new Set(present.map(({ uuid }) => uuid));
    const lost = [...this.seen].filter((uuid) => !there.has(uuid)).length;
    this.last = this.seen.size === 0 ? null : summaryOf(present, lost);
  }

  /** The engine uses others now: those that it has left are not missed. */
  private keepOnly(uuids: readonly string[]): void {
    for (const uuid of this.seen) if (!uuids.includes(uuid)) this.seen.delete(uuid);
  }
}

function summaryOf(gpus: readonly GpuFacts[], lost: number): GpuSummary {
  const throttles = known(gpus.map(({ throttled }) => throttled));
  const utilisations = known(gpus.map(({ utilisationRatio }) => utilisationRatio));
  const temperatures = known(gpus.map(({ temperatureC }) => temperatureC));
  return {
    name: gpus[0]?.name ?? null,
    count: gpus.length,
    lost,
    memoryTotalBytes: total(gpus.map(({ memoryTotalBytes }) => memoryTotalBytes)),
    memoryUsedBytes: total(gpus.map(({ memoryUsedBytes }) => memoryUsedBytes)),
    temperatureC: temperatures.length === 0 ? null : Math.max(...temperatures),
    utilisationRatio:
      utilisations.length === 0
        ? null
        : utilisations.reduce((sum, value) => sum + value, 0) / utilisations.length,
    throttled: throttles.length === 0 ? null : throttles.includes(true),
  };
}

function known<T>(values: readonly (T | null)[]): T[] {
  return values.filter((value): value is T => value !== null);
}

/** Of all of them, or of none: a sum that leaves one out is wrong. */
function total(values: readonly (number | null)[]): number | null {
  const given = known(values);
  if (given.length === 0 || given.length < values.length) return null;
  return given.reduce((sum, value) => sum + value, 0);
}
