// Reads a request's body, plain or compressed, within the limits. What is held is counted as it comes and as it is when
// decoded, so an endless upload or a compressed bomb is refused at the limit, not after it. What still comes of a refused
// body is thrown away as it comes: a client that writes before it reads would never see its answer.

import { IncomingMessage, type ServerResponse } from 'node:http';
import type { Readable, Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { FleetError, type ErrorCode } from '../../shared/errors.ts';
import type { LimitName } from '../../shared/model/limit.ts';
import type { LinkSlices } from '../../shared/runtime/link-slices.ts';
import { BytePieces } from './byte-pieces.ts';
import type { BodyHold } from './body-budget.ts';
import { BodyLift, type LiftedBody } from './lifted-body.ts';

const JSON_TYPES = /^application\/(?:[a-z0-9.+-]+\+)?json\s*(?:;|$)/i;

/** A failure that names the limit it met, so that it can be counted. */
export class LimitError extends FleetError {
  readonly limit: LimitName;

  constructor(limit: LimitName, code: ErrorCode, message: string) {
    super(code, message, code === 'saturated' ? { retryAfterS: 1 } : {});
    this.limit = limit;
  }
}

export interface BodyRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The client may send it: it may have asked first (`Expect: 100-continue`). */
  awaitBody(): void;
}

export interface Taking {
  readonly hold: BodyHold;
  readonly bounds: BodyBounds;
}

export interface BodyBounds {
  readonly bodyBytes: number;
  /** Times its encoded size that a compressed body may have. */
  readonly bodyRatio: number;
}

const DECODERS: ReadonlyMap<string, () => Transform> = new Map([
  ['gzip', createGunzip],
  ['x-gzip', createGunzip],
  ['deflate', createInflate],
  ['br', createBrotliDecompress],
]);
const ENCODINGS = 'gzip, deflate, br';
/** A body that becomes no larger than this is no bomb, whatever it was before. */
const RATIO_FROM_BYTES = 1_048_576;

/** How large bodies are read as they come. */
export interface Lifting {
  /** For what is lifted out of one. */
  readonly mark: string;
  /** Of the turns in which it is done. */
  readonly slices: LinkSlices;
}

/** A body of so many bytes is read as it comes, where that is wanted. */
const LIFTED_FROM_BYTES = 256 * 1024;

/**
 * Resolves with the whole body, or what was made of a large one where `lifting` says how; rejects with `FleetError`. The
 * caller releases `hold` whatever happens.
 */
export async function readJsonBody(
  from: BodyRequest,
  taking: Taking & { readonly lifting: Lifting | null },
): Promise<Buffer | LiftedBody>;
export async function readJsonBody(from: BodyRequest, taking: Taking): Promise<Buffer>;
export async function readJsonBody(
  from: BodyRequest,
  taking: Taking & { readonly lifting?: Lifting | null },
): Promise<Buffer | LiftedBody> {
  const { bounds } = taking;
  const { request } = from;
  const type = request.headers['content-type'];
  if (type === undefined || !JSON_TYPES.test(type)) {
    throw new FleetError('unsupported_media_type', "The content type must be 'application/json'.");
  }
  const decoder = decoderOf(from);
  if ((announcedBytes(request) ?? 0) > bounds.bodyBytes) throw tooLarge(bounds.bodyBytes);
  from.awaitBody();
  const source = decoder === null ? request : decoded(request, decoder);
  try {
    return await collect(source, request, taking);
  } finally {
    if (!request.readableEnded) discard(request, source);
  }
}

function discard(request: IncomingMessage, source: Readable): void {
  if (source !== request) {
    request.unpipe();
    source.destroy();
  }
  request.resume();
}

/** The HTTP parser lets nothing but digits pass. */
function announcedBytes({ headers }: IncomingMessage): number | null {
  const length = headers['content-length'];
  return length === undefined ? null : Number(length);
}

/** Null for a body that is as it is. */
function decoderOf({ request, response }: BodyRequest): Transform | null {
  const encoding = (request.headers['content-encoding'] ?? 'identity').trim().toLowerCase();
  if (encoding === 'identity' || encoding === '') return null;
  const decoder = DECODERS.get(encoding);
  if (decoder !== undefined) return decoder();
  response.setHeader('accept-encoding', ENCODINGS);
  throw new FleetError(
    'unsupported_media_type',
    `Of content encodings ${ENCODINGS} are understood, one at a time.`,
  );
}

function decoded(request: IncomingMessage, decoder: Transform): Readable {
  request.on('error', (error) => decoder.destroy(error));
  request.on('close', () => {
    if (!request.readableEnded) decoder.destroy(new Error('the client went away'));
  });
  return request.pipe(decoder);
}

/** By events: the stream's own iterator costs 10 µs a request more, and a refusal must leave its connection in order. */
function collect(
  source: Readable,
  request: IncomingMessage,
  taking: Taking & { readonly lifting?: Lifting | null },
): Promise<Buffer | LiftedBody> {
  const pieces = new Gathering(source, source === request ? announcedBytes(request) : null, taking);
  let encodedBytes = 0;
  if (source !== request) request.on('data', (piece: Buffer) => (encodedBytes += piece.length));
  return new Promise((resolve, reject) => {
    const take = (piece: Buffer): void => {
      const refusal = refusalOf(piece.length, pieces.length + piece.length, {
        ...taking,
        encodedBytes: source === request ? null : encodedBytes,
      });
      if (refusal === null) return pieces.add(piece);
      source.off('data', take);
      pieces.clear();
      reject(refusal);
    };
    const fail = (error?: Error): void => {
      pieces.clear();
      reject(readFailure(error, source, request));
    };
    source.on('data', take);
    source.once('end', () => {
      source.off('close', fail);
      resolve(pieces.take());
    });
    // May come behind all else: what is settled stays so.
    source.on('error', fail);
    source.once('close', fail);
    if (source.destroyed) fail();
  });
}

/** What has come of a body: its bytes, or what is read of them already once they are many. */
class Gathering {
  private readonly source: Readable;
  private readonly announced: number | null;
  private readonly lifting: Lifting | null;
  /** What comes is nobody else's: the parser has made a copy for its reader. */
  private readonly owned: boolean;
  private readonly pieces: BytePieces;
  private lift: BodyLift | null = null;

  constructor(
    source: Readable,
    announced: number | null,
    { lifting }: { readonly lifting?: Lifting | null },
  ) {
    this.source = source;
    this.announced = announced;
    this.lifting = lifting ?? null;
    this.owned = source instanceof IncomingMessage;
    this.pieces = new BytePieces(announced);
  }

  get length(): number {
    return this.lift?.length ?? this.pieces.length;
  }

  add(piece: Buffer): void {
    const { lifting } = this;
    if (lifting === null || this.length + piece.length < LIFTED_FROM_BYTES) {
      return this.pieces.add(piece);
    }
    lifting.slices.run(() => this.read(piece, lifting));
    if (!lifting.slices.isOver('bodies')) return;
    this.source.pause();
    lifting.slices.later('bodies', () => this.source.resume());
  }

  take(): Buffer | LiftedBody {
    if (this.lift !== null) return this.lift.end();
    const pieces = this.pieces.drain();
    const [only, ...more] = pieces;
    if (only !== undefined && more.length === 0) return only;
    const body = Buffer.concat(pieces);
    for (const piece of pieces) this.giveBack(piece);
    return body;
  }

  clear(): void {
    this.lift = null;
    this.pieces.clear();
  }

  private read(piece: Buffer, { mark }: Lifting): void {
    if (this.lift === null) {
      this.lift = new BodyLift(mark, this.announced);
      for (const earlier of this.pieces.drain()) this.move(this.lift, earlier);
    }
    this.move(this.lift, piece);
  }

  private move(lift: BodyLift, piece: Buffer): void {
    lift.add(piece);
    this.giveBack(piece);
  }

  /**
   * The memory of a piece that has been copied into its body, at once: it is outside of the heap, where little is let
   * become garbage before all of the heap is collected.
   */
  private giveBack(piece: Buffer): void {
    const { buffer } = piece;
    if (this.owned && buffer instanceof ArrayBuffer && piece.length === buffer.byteLength) {
      buffer.transfer(0);
    }
  }
}

/** Why a piece is not taken, where `bytes` are all with it; null when it is. `encodedBytes`: of a compressed body. */
function refusalOf(
  piece: number,
  bytes: number,
  { hold, bounds, encodedBytes }: Taking & { readonly encodedBytes: number | null },
): FleetError | null {
  if (encodedBytes !== null && bytes > RATIO_FROM_BYTES && bytes > encodedBytes * bounds.bodyRatio)
    return inflated(bounds.bodyRatio);
  const limit = hold.take(piece);
  if (limit === null) return null;
  if (limit === 'body_bytes') return tooLarge(bounds.bodyBytes);
  return new LimitError(limit, 'saturated', 'The router holds too many request bodies.');
}

/** Whose fault it is that the body did not come to its end. */
function readFailure(error: unknown, source: Readable, request: IncomingMessage): FleetError {
  const cut = request.destroyed && !request.readableEnded;
  if (source === request || cut) {
    return new FleetError('client_closed', 'The request ended before its body did.', {
      cause: error,
    });
  }
  const encoding = request.headers['content-encoding'] ?? '';
  return new FleetError('invalid_request', `The request body is not valid ${encoding}.`, {
    cause: error,
  });
}

function inflated(ratio: number): LimitError {
  return new LimitError(
    'body_ratio',
    'request_too_large',
    `The request body is more than ${ratio} times as large as its compressed form.`,
  );
}

function tooLarge(bodyBytes: number): LimitError {
  return new LimitError(
    'body_bytes',
    'request_too_large',
    `The request body is larger than ${bodyBytes} bytes.`,
  );
}
