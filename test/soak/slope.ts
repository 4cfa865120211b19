// How much memory a request leaves behind: a line through samples of bytes on completed requests, and what of its slope is
// certain.
//
// Neighbouring samples are alike (a heap grows in steps and is collected in steps), so they are not independent, and a line
// through all of them would seem far more certain than it is. They are put together by the requests that they cover into
// `BLOCKS` means, and the line goes through these: slope = Sxy / Sxx, its error s / √Sxx with s² = Σ residual² / (n − 2),
// the bound at Student's t for n − 2 degrees of freedom.
//
//   good   slope < 64 bytes a request, or no growth is certain: the one-sided 90 % lower bound ≤ 0

export interface MemorySample {
  /** Completed since the beginning of the run. */
  readonly requests: number;
  readonly bytes: number;
}

export interface Slope {
  /** Bytes a request. */
  readonly bytesPerRequest: number;
  /** One-sided 90 % bounds. */
  readonly lower: number;
  readonly upper: number;
  readonly samples: number;
}

export const GOOD_BYTES_PER_REQUEST = 64;
const BLOCKS = 12;
/** Student's t at 0.9 for 1, 2, … degrees of freedom. */
const T90 = [3.078, 1.886, 1.638, 1.533, 1.476, 1.44, 1.415, 1.397, 1.383, 1.372];
const LEAST_SAMPLES = 2 * BLOCKS;

/** Null where there are too few samples, or they cover no requests. */
export function slopeOf(samples: readonly MemorySample[]): Slope | null {
  if (samples.length < LEAST_SAMPLES) return null;
  const means = blockMeans(samples);
  const n = means.length;
  if (n < 4) return null;
  const mx = means.reduce((sum, { requests }) => sum + requests, 0) / n;
  const my = means.reduce((sum, { bytes }) => sum + bytes, 0) / n;
  let sxx = 0;
  let sxy = 0;
  for (const { requests, bytes } of means) {
    sxx += (requests - mx) ** 2;
    sxy += (requests - mx) * (bytes - my);
  }
  const slope = sxy / sxx;
  const left = means.reduce(
    (sum, { requests, bytes }) => sum + (bytes - my - slope * (requests - mx)) ** 2,
    0,
  );
  const error = Math.sqrt(left / (n - 2) / sxx) * (T90[n - 3] ?? 1.372);
  return {
    bytesPerRequest: slope,
    lower: slope - error,
    upper: slope + error,
    samples: samples.length,
  };
}

export function isGood({ bytesPerRequest, lower }: Slope): boolean {
  return bytesPerRequest < GOOD_BYTES_PER_REQUEST || lower <= 0;
}

/** Of stretches of equally many requests; one that no sample is of has no mean. */
function blockMeans(samples: readonly MemorySample[]): MemorySample[] {
  const from = Math.min(...samples.map(({ requests }) => requests));
  const to = Math.max(...samples.map(({ requests }) => requests));
  if (from === to) return [];
  const blockOf = ({ requests }: MemorySample): number =>
    Math.min(BLOCKS - 1, Math.floor(((requests - from) / (to - from)) * BLOCKS));
  return [...Map.groupBy(samples, blockOf).values()].map((block) => ({
    requests: block.reduce((sum, { requests }) => sum + requests, 0) / block.length,
    bytes: block.reduce((sum, { bytes }) => sum + bytes, 0) / block.length,
  }));
}
