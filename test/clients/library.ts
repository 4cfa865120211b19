// A client library as an application uses it: the plainest form of each call.

export interface Asked {
  /** Of the router, or of the wire before it. */
  readonly url: string;
  readonly model: string;
  readonly prompt: string;
  /** The right one unless given. */
  readonly key?: string;
  /** The library's own default unless given. */
  readonly maxRetries?: number;
  readonly maxTokens?: number;
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

/** What an application can read of an error. */
export interface Shown {
  /** Class, or name. */
  readonly kind: string;
  readonly status: number | undefined;
  readonly code: unknown;
  readonly message: string;
  readonly requestId: string | null | undefined;
}

export interface Library {
  readonly name: string;
  /** Pieces of text as they come. */
  stream(asked: Asked): AsyncIterable<string>;
  whole(asked: Asked): Promise<string>;
  shown(error: unknown): Shown;
  /** Whether it waits as `retry-after-ms` or `Retry-After` says. */
  readonly waitsAsTold: boolean;
  readonly shows: {
    readonly invalidKey: Partial<Shown>;
    readonly noModel: Partial<Shown>;
    readonly tooLong: Partial<Shown>;
    readonly engineRefuses: Partial<Shown>;
    readonly saturated: Partial<Shown>;
    readonly noReplica: Partial<Shown>;
    /** A stream that failed behind its first token. */
    readonly cut: Partial<Shown>;
    /** One that failed before it, when comments had begun the answer. */
    readonly late: Partial<Shown>;
    readonly timeout: Partial<Shown>;
  };
}

/** What came of a stream: its pieces, and what it threw. */
export async function outcomeOf(
  stream: AsyncIterable<string>,
): Promise<{ pieces: string[]; error: unknown }> {
  const pieces: string[] = [];
  try {
    for await (const piece of stream) if (piece !== '') pieces.push(piece);
  } catch (error) {
    return { pieces, error };
  }
  return { pieces, error: null };
}

/** What a call threw; null where it threw nothing. */
export function failureOf(call: Promise<unknown>): Promise<unknown> {
  return call.then(
    () => null,
    (error: unknown) => error,
  );
}
