// Names a conversation without its content: what tiers and regions tell each other of it.
//
//   by text   the first 128 bits of HMAC-SHA-256(secret, tenant, offset, running hash of the canonical bytes up to there):
//             one point of a conversation, and another one a turn later
//   by id     the same of (tenant, model, the id that its client gave it): one for all of its turns. A model has caches
//             of its own, so that what a client asks two models under one id are two conversations
//
// The running hash is 64 bits wide and not keyed, so it never leaves the process; a key cannot be turned back, nor a
// guessed prompt or id be confirmed without the secret. All global routers of a fleet share the secrets: the first makes
// keys, and what was named by an older one is still found by it.

import { createHmac, createSecretKey, type KeyObject } from 'node:crypto';
import type { TurnEnd } from '../model/prompt.ts';

/** Base64url characters of 128 bits. */
const KEY_LENGTH = 22;
/** Stands where a point of a text has its offset, which is never less than 0. */
const NO_OFFSET = -1;

/** An id that a client gave a conversation, and whose it is. */
export interface NamedConversation {
  readonly tenant: string;
  /** Public name. */
  readonly model: string;
  readonly id: string;
}

export class HmacConversationKeys {
  #secrets: readonly KeyObject[];
  readonly #point = Buffer.alloc(16);

  /** At least one, the one that makes keys first. */
  constructor(...secrets: readonly [string, ...string[]]) {
    this.#secrets = secrets.map(secretOf);
  }

  configure(...secrets: readonly [string, ...string[]]): void {
    this.#secrets = secrets.map(secretOf);
  }

  /** Secrets by which keys may have been made. */
  get generations(): number {
    return this.#secrets.length;
  }

  /** `generation`: of the secret, 0 the one that makes keys. */
  keyOf(tenant: string, end: TurnEnd, generation = 0): string {
    const point = this.#point;
    point.writeUInt32LE(end.hashLow, 0);
    point.writeUInt32LE(end.hashHigh, 4);
    point.writeDoubleLE(end.offset, 8);
    // The point has a fixed length and comes first: no tenant's name can be mistaken for a part of it.
    return this.#named(generation, tenant);
  }

  keyOfId({ tenant, model, id }: NamedConversation, generation = 0): string {
    const point = this.#point;
    // Lengths come first: where one name ends and the next begins is no matter of what they are.
    point.writeUInt32LE(tenant.length, 0);
    point.writeUInt32LE(model.length, 4);
    point.writeDoubleLE(NO_OFFSET, 8);
    return this.#named(generation, tenant + model + id);
  }

  #named(generation: number, text: string): string {
    const secret = this.#secrets[generation];
    if (secret === undefined) throw new Error(`no secret ${generation}`);
    const hmac = createHmac('sha256', secret).update(this.#point).update(text);
    return hmac.digest('base64url').slice(0, KEY_LENGTH);
  }
}

function secretOf(text: string): KeyObject {
  return createSecretKey(Buffer.from(text));
}
