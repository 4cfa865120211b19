// How long an engine asks to be left alone: `retry-after-ms`, else `Retry-After` in seconds. A date is not
// read: the clocks of two machines need not agree.

import type { IncomingHttpHeaders } from 'node:http';

/** ms; null where the engine does not say. */
export function retryAfterMs(headers: IncomingHttpHeaders): number | null {
  const exact = positive(headers['retry-after-ms']);
  if (exact !== null) return exact;
  const seconds = positive(headers['retry-after']);
  return seconds === null ? null : seconds * 1_000;
}

function positive(value: string | string[] | undefined): number | null {
  if (typeof value !== 'string' || value.trim() === '') return null;
  const number = Number(value);
  return Number.isFinite(number) && number >= 0 ? number : null;
}
