// How long a client waits, by what its SDK says and what that SDK does with it:
//
//   x-stainless-timeout       Node: seconds from sending to the head of the answer; of an answer that is not streamed, to
//                             its end
//   x-stainless-read-timeout  Python: seconds without a byte; any byte begins it anew, a comment too
//   x-spillway-deadline-ms    anybody: from sending to the first token; of an answer that is not streamed, to its end
//
// A head that comments have sent early would stop Node's clock without an answer having come, so its timeout bounds the
// first token. Python's bounds the silence alone: of a stream, comments fill it; without a stream nothing can be sent
// before the whole answer. The least deadline counts, less the time that a refusal needs to be there before it.

export interface ClientPatience {
  /** ms from arrival to the first token, or to the whole answer where it is not streamed; null when unknown. */
  readonly deadlineMs: number | null;
  /** ms without a byte of a stream after which the client leaves; null when unknown. */
  readonly silenceMs: number | null;
  /** Tries before this one, as its SDK counts them; null when it does not. */
  readonly retries: number | null;
}

type Headers = Readonly<Record<string, unknown>>;

/** A day: an answer that may take longer has no deadline to speak of, ms. */
const LONGEST_MS = 86_400_000;
const RETRIES_MAX = 1_000;
/** What a refusal takes to be there in time: a tenth of the deadline, and no more than this, ms. */
const WAY_BACK_MS = 250;
const WAY_BACK_RATIO = 0.1;

export function clientPatience(headers: Headers, stream: boolean): ClientPatience {
  const untilHeadMs = positive(headers['x-stainless-timeout'], 1_000);
  const silenceMs = positive(headers['x-stainless-read-timeout'], 1_000);
  const own = positive(headers['x-spillway-deadline-ms'], 1);
  const deadlines = [own, untilHeadMs, stream ? null : silenceMs].filter((ms) => ms !== null);
  return {
    deadlineMs: deadlines.length === 0 ? null : inTime(Math.min(...deadlines)),
    silenceMs: stream ? silenceMs : null,
    retries: retriesOf(headers['x-stainless-retry-count']),
  };
}

/** Part of the silence that a client bears after which it is sent something. */
const FILL_RATIO = 0.8;
const FILL_MIN_MS = 100;

/** Silence after which a stream's client is sent a comment, ms. */
export function keepAliveAfter(settingMs: number, silenceMs: number | null): number {
  return silenceMs === null
    ? settingMs
    : Math.max(FILL_MIN_MS, Math.min(settingMs, FILL_RATIO * silenceMs));
}

function inTime(deadlineMs: number): number {
  return deadlineMs - Math.min(WAY_BACK_MS, WAY_BACK_RATIO * deadlineMs);
}

function positive(value: unknown, unitMs: number): number | null {
  const number = typeof value === 'string' ? Number(value) : Number.NaN;
  return number > 0 ? Math.min(number * unitMs, LONGEST_MS) : null;
}

function retriesOf(value: unknown): number | null {
  if (typeof value !== 'string' || !/^\d{1,6}$/.test(value)) return null;
  return Math.min(Number(value), RETRIES_MAX);
}
