// `Server-Timing`: where the time of a request went until its answer began, for a client that asks why it waited.
//
//   read      from the first byte of the request to the end of its body, parsed
//   decide    the routing decision itself
//   queue     waited in the router until its first attempt
//   retry     from the first attempt to the last one
//   engine    from the last attempt to the first token; to the whole answer where it is not streamed
//   ttft      from arrival to the first token, where there is one; `total`: to the answer
//
// What did not happen is left out.

export interface ServerTimes {
  readonly arrivedMs: number;
  /** The body was there. */
  readonly readMs: number;
  readonly decideMs: number | null;
  readonly firstAttemptMs: number | null;
  readonly lastAttemptMs: number | null;
  readonly attempts: number;
  readonly nowMs: number;
  /** The answer begins with a first token, or is due when one would be. */
  readonly firstToken: boolean;
}

export function serverTiming(times: ServerTimes): string {
  const { arrivedMs, readMs, decideMs, firstAttemptMs, lastAttemptMs, nowMs } = times;
  const decidedMs = readMs + (decideMs ?? 0);
  const retryMs = times.attempts > 1 ? between(firstAttemptMs, lastAttemptMs) : null;
  return (
    entry('read', readMs - arrivedMs) +
    entry(', decide', decideMs) +
    entry(', queue', (firstAttemptMs ?? nowMs) - decidedMs) +
    entry(', retry', retryMs) +
    entry(', engine', between(lastAttemptMs, nowMs)) +
    entry(times.firstToken ? ', ttft' : ', total', nowMs - arrivedMs)
  );
}

function entry(name: string, ms: number | null): string {
  return ms === null ? '' : `${name};dur=${rounded(ms)}`;
}

function between(fromMs: number | null, toMs: number | null): number | null {
  return fromMs === null || toMs === null ? null : toMs - fromMs;
}

/** A clock that is read twice may say that a decision took longer than its request. */
function rounded(ms: number): number {
  return Math.round(Math.max(0, ms) * 100) / 100;
}
