// The last requests as they were received, so that a test can look at what an engine really got. Bounded in number and
// bytes.

export interface ReceivedRequest {
  /** ms since 1970. */
  readonly atMs: number;
  readonly method: string;
  readonly path: string;
  /** Name and value, as they were sent, in order. */
  readonly headers: readonly (readonly [string, string])[];
  /** The raw body as text; null where it was longer than is kept. */
  readonly body: string | null;
  readonly bodyBytes: number;
}

const BODY_BYTES_MAX = 1024 * 1024;
const ALL_BYTES_MAX = 32 * 1024 * 1024;

export class ReceivedLog {
  readonly #max: number;
  readonly #requests: ReceivedRequest[] = [];
  #bytes = 0;

  constructor(max: number) {
    this.#max = max;
  }

  add(
    request: Omit<ReceivedRequest, 'headers' | 'body' | 'bodyBytes'>,
    raw: { readonly headers: readonly string[]; readonly body: Buffer },
  ): void {
    const headers: [string, string][] = [];
    for (let at = 0; at + 1 < raw.headers.length; at += 2) {
      headers.push([raw.headers[at] ?? '', raw.headers[at + 1] ?? '']);
    }
    const kept = raw.body.length <= BODY_BYTES_MAX;
    const body = kept ? raw.body.toString('utf8') : null;
    this.#requests.push({ ...request, headers, body, bodyBytes: raw.body.length });
    this.#bytes += kept ? raw.body.length : 0;
    while (this.#requests.length > this.#max || this.#bytes > ALL_BYTES_MAX) {
      const gone = this.#requests.shift();
      if (gone !== undefined && gone.body !== null) this.#bytes -= gone.bodyBytes;
    }
  }

  list(): readonly ReceivedRequest[] {
    return this.#requests;
  }

  clear(): void {
    this.#requests.length = 0;
    this.#bytes = 0;
  }
}
