// Fields that messages of more than one link have: their types and bounds.
//
// Figures that are sums and differences of floating point numbers may fall a hair below 0: they become 0.

import { z } from 'zod';
import { MAX_AMOUNT, MAX_TEXT } from './limits.ts';

const ROUNDING = -1e-6;

export const text = z.string().max(MAX_TEXT);
/** The brand is given here, at the edge, and nowhere else. */
export const idOf = <T extends string>(): z.ZodType<T> =>
  z.string().min(1).max(MAX_TEXT) as unknown as z.ZodType<T>;
export const count = z.int().min(0);
export const amount = z
  .number()
  .min(ROUNDING)
  .max(MAX_AMOUNT)
  .overwrite((value) => Math.max(0, value));
export const costCurve = z.object({
  baseMs: amount,
  frontMsPerToken: amount,
  linearMsPerToken: amount,
  contextMsPerToken2: amount,
  stepTokens: z.number().min(1).max(MAX_AMOUNT),
});
