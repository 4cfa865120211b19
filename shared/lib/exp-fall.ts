// e^−x for x ≥ 0, by a table: what is asked once for each of a thousand targets in every decision.
//
//   e^−x = e^−n/64 · e^(n/64 − x)     n/64 next to x; the second factor by its series up to the third power
//
// Within 2 · 10⁻¹⁰ of the value; equal x give equal values, whoever asks. Nothing is left from 40 on (4 · 10⁻¹⁸).

const STEPS = 64;
const MOST = 40;
const TABLE = Float64Array.from({ length: STEPS * MOST + 1 }, (_, n) => Math.exp(-n / STEPS));

export function expFall(x: number): number {
  if (!(x < MOST)) return 0;
  const n = (STEPS * x + 0.5) | 0;
  const by = n / STEPS - x;
  return (TABLE[n] as number) * (1 + by * (1 + by * (1 / 2 + by * (1 / 6))));
}
