// What `nvidia-smi` prints, as figures. CSV without header or units; a field that the driver cannot fill is a word in
// brackets ([N/A], [Not Supported], [Insufficient Permissions], [Unknown Error], [GPU is lost], [GPU requires reset]),
// in some versions without them (ERR!).
//
//   exit 0     one row a GPU; one that has fallen off the bus is left out, with a line on the other stream, or its
//              fields say so
//   exit 6     "No devices were found": the driver works and has none
//   else       "GPU is lost" in the text: one is, and nothing can be said of the others
//              anything else (no driver, versions that do not fit, a time-out): unknown
//
// Clocks that are lowered because the board's power limit is reached are how a busy GPU always runs: only heat and
// the hardware's own slowdowns count as throttling.

import type { GpuFacts, GpuReading } from './policy/gpu-presence.ts';

/** What a run of the tool left behind. `exitCode` null: it did not run, or did not end in time. */
export interface SmiOutput {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** There is no such program. */
  readonly missing?: boolean;
}

export const GPU_FIELDS = [
  'index',
  'uuid',
  'name',
  'memory.total',
  'memory.used',
  'temperature.gpu',
  'utilization.gpu',
  'power.draw',
] as const;

/** Names of the bit mask of reasons, newest driver first; an older driver does not know the newer name. */
export const THROTTLE_FIELDS = ['clocks_event_reasons.active', 'clocks_throttle_reasons.active'];

const MIB = 1_024 * 1_024;
// Hardware slowdown, software thermal, hardware thermal, hardware power brake (NVML's nvmlClocksEventReason…).
const THROTTLE_MASK = 0x8 | 0x20 | 0x40 | 0x80;
const LOST = /GPU is lost|GPU requires reset/i;
const BROKEN = /Unknown Error|ERR!/i;
const MAX_GPUS = 64;
/** Processes on them. */
const MAX_ROWS = 1_024;
/** Characters of a GPU's name: it stands in reports and labels. */
const MAX_NAME = 128;

export function gpuReading({ exitCode, stdout, stderr }: SmiOutput): GpuReading {
  if (exitCode === null) return { kind: 'unknown' };
  const text = `${stdout}\n${stderr}`;
  if (/No devices were found/i.test(text)) return { kind: 'gpus', gpus: [] };
  const gpus = rowsOf(stdout).slice(0, MAX_GPUS).flatMap(gpuOf);
  if (gpus.length > 0) return { kind: 'gpus', gpus };
  return LOST.test(text) ? { kind: 'lost' } : { kind: 'unknown' };
}

/** The driver is older than the field's name. */
export function isUnknownField({ stdout, stderr }: SmiOutput): boolean {
  return /is not a valid field to query/i.test(`${stdout}\n${stderr}`);
}

/** Of `--query-compute-apps=pid,gpu_uuid`: which GPUs each process uses. */
export function computeApps(stdout: string): ReadonlyMap<number, ReadonlySet<string>> {
  const apps = new Map<number, Set<string>>();
  for (const [pidText, uuid] of rowsOf(stdout)) {
    const pid = Number(pidText);
    if (!Number.isInteger(pid) || pid <= 0 || uuid?.startsWith('GPU-') !== true) continue;
    const uuids = apps.get(pid) ?? new Set();
    uuids.add(uuid);
    apps.set(pid, uuids);
  }
  return apps;
}

function rowsOf(stdout: string): string[][] {
  const lines = stdout.split(/\r?\n/).filter((line) => line.includes(','));
  return lines.slice(0, MAX_ROWS).map((line) => line.split(',').map((field) => field.trim()));
}

function gpuOf(fields: readonly string[]): GpuFacts[] {
  const [index, uuid, name, total, used, temperature, utilisation, power, throttle] = fields;
  const at = Number(index);
  if (!Number.isInteger(at) || at < 0 || uuid?.startsWith('GPU-') !== true) return [];
  const figures = [used, temperature, utilisation];
  const silent = figures.every((field) => numberOf(field) === null);
  const broken = silent && figures.some((field) => BROKEN.test(field ?? ''));
  const ratio = numberOf(utilisation);
  return [
    {
      index: at,
      uuid,
      name: name === undefined || name.startsWith('[') ? null : name.slice(0, MAX_NAME),
      memoryTotalBytes: scaled(total, MIB),
      memoryUsedBytes: scaled(used, MIB),
      temperatureC: numberOf(temperature),
      utilisationRatio: ratio === null ? null : Math.min(1, ratio / 100),
      powerW: numberOf(power),
      throttled: throttledOf(throttle),
      lost: broken || fields.some((field) => LOST.test(field)),
    },
  ];
}

/** Null where the field is a word, or absent. */
function numberOf(field: string | undefined): number | null {
  if (field === undefined || !/^-?\d+(\.\d+)?$/.test(field)) return null;
  return Number(field);
}

function scaled(field: string | undefined, factor: number): number | null {
  const value = numberOf(field);
  return value === null ? null : value * factor;
}

function throttledOf(field: string | undefined): boolean | null {
  if (field === undefined || !/^0x[0-9a-f]{1,16}$/i.test(field)) return null;
  return (BigInt(field) & BigInt(THROTTLE_MASK)) !== 0n;
}
