// Reads a request's body, plain or gzipped, within the limits. What is held is counted as it comes, so an
// endless upload or a compressed bomb is refused at the limit, not after it. What still comes of a refused body
// is thrown away as it comes: a client that writes before it reads would never see its answer.

import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { FleetError, type ErrorCode } from '../../shared/errors.ts';
import type { LimitName } from '../../shared/model/limit.ts';
import type { BodyHold } from './body-budget.ts';

const JSON_TYPES = /^application\/(?:[a-z0-9.+-]+\+)?json\s*(?:;|$)/i;

/** A failure that names the limit it met, so that it can be counted. */
export class LimitError extends FleetError {
  readonly limit: LimitName;

  constructor(limit: LimitName, code: ErrorCode, message: string) {
    super(code, message, code === 'saturated' ? { retryAfterS: 1 } : {});
    this.limit = limit;
  }
}

/** Resolves with the whole body; rejects with `FleetError`. The caller releases `hold` whatever happens. */
export async function readJsonBody(
  request: IncomingMessage,
  hold: BodyHold,
  bodyBytes: number,
): Promise<Buffer> {
  const type = request.headers['content-type'];
  if (type === undefined || !JSON_TYPES.test(type)) {
    throw new FleetError('unsupported_media_type', "The content type must be 'application/json'.");
  }
  const announced = Number(request.headers['content-length'] ?? 0);
  if (announced > bodyBytes) throw tooLarge(bodyBytes);
  const source = decoded(request);
  try {
    return await collect(source, hold, bodyBytes);
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

function decoded(request: IncomingMessage): Readable {
  const encoding = (request.headers['content-encoding'] ?? 'identity').trim().toLowerCase();
  if (encoding === 'identity') return request;
  if (encoding !== 'gzip') {
    throw new FleetError(
      'unsupported_media_type',
      "Only the content encoding 'gzip' is understood.",
    );
  }
  const gunzip = createGunzip();
  request.on('error', (error) => gunzip.destroy(error));
  request.on('close', () => {
    if (!request.readableEnded) gunzip.destroy(new Error('the client went away'));
  });
  return request.pipe(gunzip);
}

async function collect(source: Readable, hold: BodyHold, bodyBytes: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  try {
    // An iterator of the stream's own would destroy it at the first refusal, and leave its connection stuck.
    for await (const piece of source.iterator({ destroyOnReturn: false })) {
      const limit = hold.take((piece as Buffer).length);
      if (limit === 'body_bytes') throw tooLarge(bodyBytes);
      if (limit !== null) {
        throw new LimitError(limit, 'saturated', 'The router holds too many request bodies.');
      }
      pieces.push(piece as Buffer);
    }
  } catch (error) {
    if (error instanceof FleetError) throw error;
    const code = (error as { code?: unknown }).code;
    if (typeof code === 'string' && code.startsWith('Z_')) {
      throw new FleetError('invalid_request', 'The request body is not valid gzip.', {
        cause: error,
      });
    }
    throw new FleetError('client_closed', 'The request ended before its body did.', {
      cause: error,
    });
  }
  const only = pieces[0];
  return pieces.length === 1 && only !== undefined ? only : Buffer.concat(pieces);
}

function tooLarge(bodyBytes: number): LimitError {
  return new LimitError(
    'body_bytes',
    'request_too_large',
    `The request body is larger than ${bodyBytes} bytes.`,
  );
}
