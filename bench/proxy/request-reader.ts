// Reads the requests of one connection to a replica, at any cut of their bytes: as little as a replica must know of HTTP/1.1, because
// what it costs is time that the load's core does not have. A body has a content-length; what else comes is refused.

/** A request whole: its first line's method and path, and its body. */
export interface ReplicaRequest {
  readonly method: string;
  readonly path: string;
  readonly body: Buffer;
}

export type Refusal = 400 | 411 | 431;

const HEAD_MAX = 65_536;
const NOTHING = Buffer.alloc(0);
const HEAD_END = Buffer.from('\r\n\r\n');

export class RequestReader {
  #head: { readonly method: string; readonly path: string } | null = null;
  #left = 0;
  /** Of a head that a cut left. */
  #carry: Buffer = NOTHING;
  #pieces: Buffer[] = [];

  /** Hands on what is whole now; a refusal where it cannot go on. */
  take(piece: Buffer, whole: (request: ReplicaRequest) => void): Refusal | null {
    let rest = piece;
    while (rest.length > 0) {
      if (this.#head === null) {
        const body = this.#readHead(rest);
        if (typeof body === 'number') return body;
        if (body === null) return null;
        rest = body;
      }
      rest = this.#readBody(rest);
      if (this.#left > 0 || this.#head === null) return null;
      const { method, path } = this.#head;
      this.#head = null;
      const [only = NOTHING] = this.#pieces;
      const body = this.#pieces.length > 1 ? Buffer.concat(this.#pieces) : only;
      this.#pieces = [];
      whole({ method, path, body });
    }
    return null;
  }

  /** What comes behind the head; null where the head goes on. */
  #readHead(piece: Buffer): Buffer | Refusal | null {
    const bytes = this.#carry.length === 0 ? piece : Buffer.concat([this.#carry, piece]);
    const end = bytes.indexOf(HEAD_END);
    this.#carry = end < 0 ? bytes : NOTHING;
    if (end < 0) return bytes.length > HEAD_MAX ? 431 : null;
    const head = bytes.toString('latin1', 0, end + 2);
    const [, method, path] = /^([A-Z]+) (\/[^ ?]*)[^ ]* HTTP\/1\.1\r\n/.exec(head) ?? [];
    if (method === undefined || path === undefined) return 400;
    if (/\r\ntransfer-encoding:/i.test(head)) return 411;
    this.#left = Number(/\r\ncontent-length: *(\d+)\r\n/i.exec(head)?.[1] ?? 0);
    this.#head = { method, path };
    return bytes.subarray(end + HEAD_END.length);
  }

  #readBody(bytes: Buffer): Buffer {
    const mine = bytes.subarray(0, this.#left);
    if (mine.length > 0) this.#pieces.push(mine);
    this.#left -= mine.length;
    return bytes.subarray(mine.length);
  }
}
