// The body of a request in one piece.

import type { IncomingMessage } from 'node:http';

const BODY_BYTES_MAX = 64 * 1024 * 1024;

/** The whole body; null when it is longer than is taken. */
export async function readBody(request: IncomingMessage): Promise<Buffer | null> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
