// Seeded randomness: an argument everywhere, so that a run can be repeated.

export interface Random {
  /** Uniform in [0, 1). */
  next(): number;
}

/** xoshiro128** by Blackman and Vigna, seeded through splitmix32: fast, and good enough to draw and jitter. */
export function seededRandom(seed: number): Random {
  let mix = seed >>> 0;
  const splitmix = (): number => {
    mix = (mix + 0x9e3779b9) >>> 0;
    let z = mix;
    z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
    z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
    return (z ^ (z >>> 16)) >>> 0;
  };
  let a = splitmix();
  let b = splitmix();
  let c = splitmix();
  let d = splitmix();
  const rotl = (x: number, k: number): number => ((x << k) | (x >>> (32 - k))) >>> 0;
  return {
    next() {
      const result = Math.imul(rotl(Math.imul(b, 5) >>> 0, 7), 9) >>> 0;
      const t = (b << 9) >>> 0;
      c = (c ^ a) >>> 0;
      d = (d ^ b) >>> 0;
      b = (b ^ c) >>> 0;
      a = (a ^ d) >>> 0;
      c = (c ^ t) >>> 0;
      d = rotl(d, 11);
      return result / 4_294_967_296;
    },
  };
}
