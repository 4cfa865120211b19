// Names a conversation, at one point of it, without its content: what tiers and regions tell each other of it.
//
//   key = the first 128 bits of HMAC-SHA-256(secret, tenant, offset, running hash of the canonical bytes up to there)
//
// The running hash is 64 bits wide and not keyed, so it never leaves the process; the key cannot be turned back, nor a
// guessed prompt be confirmed without the secret. All global routers of a fleet share the secret.

import { createHmac, createSecretKey, type KeyObject } from 'node:crypto';
import type { TurnEnd } from '../model/prompt.ts';

/** Base64url characters of 128 bits. */
const KEY_LENGTH = 22;

export class HmacConversationKeys {
  readonly #secret: KeyObject;
  readonly #point = Buffer.alloc(16);

  constructor(secret: string) {
    this.#secret = createSecretKey(Buffer.from(secret));
  }

  keyOf(tenant: string, end: TurnEnd): string {
    const point = this.#point;
    point.writeUInt32LE(end.hashLow, 0);
    point.writeUInt32LE(end.hashHigh, 4);
    point.writeDoubleLE(end.offset, 8);
    // The point has a fixed length and comes first: no tenant's name can be mistaken for a part of it.
    const hmac = createHmac('sha256', this.#secret).update(point).update(tenant);
    return hmac.digest('base64url').slice(0, KEY_LENGTH);
  }
}
