// Which ends of requests are faults of the region. While at least one healthy replica has room, which the troubles of a soak
// always leave, nothing but this may come between a client and its whole answer:
//
//   no connection     to a router that was being ended, before anything of the answer had come
//   interrupted       told as such, of a stream that was under way while its engine or its own router was broken
//
// An answer that looks complete and is not the right one, a status that is no answer, and a wait without end never may.

export type Kind = 'json' | 'talk' | 'long';

/** What became of one request. */
export interface Ended {
  readonly kind: Kind;
  readonly router: number;
  /**
   * complete: the right answer, ended as the protocol has it; interrupted: told so after some of it had come; refused: a
   * status or error event before any of it; unconnected: the connection failed before any of it; hung: nothing came for
   * long; wrong: it looks complete and is not.
   */
  readonly end: 'complete' | 'interrupted' | 'refused' | 'unconnected' | 'hung' | 'wrong';
  readonly fromMs: number;
  readonly toMs: number;
  readonly detail: string;
}

/** What a trouble breaks for those whose requests are under way. */
export type Breaks = 'nothing' | 'engines' | { readonly router: number };

/** While something was broken; null where it still is. */
export interface Window {
  readonly name: string;
  readonly breaks: Breaks;
  readonly fromMs: number;
  toMs: number | null;
}

/** Null where the trouble explains it. */
export function faultOf(ended: Ended, windows: readonly Window[]): string | null {
  const during = windows.filter(
    ({ fromMs, toMs }) => fromMs <= ended.toMs && (toMs ?? Infinity) >= ended.fromMs,
  );
  if (ended.end === 'complete' || isExcused(ended, during)) return null;
  const names = during.map(({ name }) => name).join(', ') || 'nothing';
  return `${ended.end} (${ended.kind}, router ${ended.router}, during ${names}): ${ended.detail}`;
}

function isExcused({ end, router }: Ended, during: readonly Window[]): boolean {
  const own = during.some(({ breaks }) => typeof breaks === 'object' && breaks.router === router);
  if (end === 'unconnected') return own;
  if (end === 'interrupted') return own || during.some(({ breaks }) => breaks === 'engines');
  return false;
}

/** Windows that no request under way can have met any more are dropped. */
export function dropOld(windows: Window[], beforeMs: number): void {
  const keep = windows.filter(({ toMs }) => toMs === null || toMs >= beforeMs);
  windows.splice(0, windows.length, ...keep);
}
