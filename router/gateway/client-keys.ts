// Which client a request is from, by its key. Keys are random and long, so that one SHA-256 of each is all that is kept,
// and no slow hash is needed: a guess costs 2^256 tries either way.
//
//   presented   `Authorization: Bearer` or, as Anthropic's clients send it, `x-api-key`
//   look-up     the first bytes of the digest choose the candidates, the rest is compared in constant time. What the
//               time of the look-up tells is a prefix of a hash, from which no key can be found
//   repeated    a connection presents the same key with each request: the last answer for it is kept, as long as
//               the table of keys is the same

import { hash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';

export interface ClientKeyEntry {
  /** Whose it is; the same name may stand twice, while a key is exchanged. */
  readonly name: string;
  /** Hex SHA-256 of the key. */
  readonly sha256: string;
}

export interface OwnedKey<Owner> {
  /** Hex SHA-256 of the key. */
  readonly sha256: string;
  readonly owner: Owner;
}

export type KeyVerdict<Owner> =
  | { readonly kind: 'known'; readonly owner: Owner }
  | { readonly kind: 'missing' }
  | { readonly kind: 'unknown' };

const INDEX_DIGITS = 8;
/** A longer header is no key of ours, and is not hashed. */
const MAX_KEY_LENGTH = 1_024;

type Table<Owner> = ReadonlyMap<string, readonly Entry<Owner>[]>;

interface Seen<Owner> {
  readonly table: Table<Owner>;
  readonly presented: string;
  readonly verdict: KeyVerdict<Owner>;
}

interface Entry<Owner> {
  readonly owner: Owner;
  readonly digest: Buffer;
}

export class ClientKeys<Owner> {
  private table: Table<Owner>;
  private readonly seen = new WeakMap<Socket, Seen<Owner>>();

  constructor(keys: readonly OwnedKey<Owner>[]) {
    this.table = tableOf(keys);
  }

  /** Takes effect for the next request of every connection. */
  configure(keys: readonly OwnedKey<Owner>[]): void {
    this.table = tableOf(keys);
  }

  /** False: nobody needs a key. */
  get any(): boolean {
    return this.table.size > 0;
  }

  check(headers: IncomingHttpHeaders, socket: Socket): KeyVerdict<Owner> {
    const presented = presentedKey(headers);
    if (presented === null) return { kind: 'missing' };
    const last = this.seen.get(socket);
    if (last?.table === this.table && last.presented === presented) return last.verdict;
    const verdict = this.find(presented);
    this.seen.set(socket, { table: this.table, presented, verdict });
    return verdict;
  }

  private find(presented: string): KeyVerdict<Owner> {
    if (presented.length > MAX_KEY_LENGTH) return { kind: 'unknown' };
    const hex = hash('sha256', presented, 'hex');
    const digest = Buffer.from(hex, 'hex');
    const candidates = this.table.get(hex.slice(0, INDEX_DIGITS)) ?? [];
    const found = candidates.find((entry) => timingSafeEqual(entry.digest, digest));
    return found === undefined ? { kind: 'unknown' } : { kind: 'known', owner: found.owner };
  }
}

/** Null where none is presented. A bearer wins over `x-api-key`. */
function presentedKey(headers: IncomingHttpHeaders): string | null {
  const { authorization } = headers;
  if (authorization !== undefined) {
    const bearer = /^bearer +(\S+) *$/i.exec(authorization)?.[1];
    if (bearer !== undefined) return bearer;
  }
  const key = headers['x-api-key'];
  return typeof key === 'string' && key !== '' ? key : null;
}

function tableOf<Owner>(keys: readonly OwnedKey<Owner>[]): Table<Owner> {
  const table = new Map<string, Entry<Owner>[]>();
  for (const { owner, sha256 } of keys) {
    const index = sha256.slice(0, INDEX_DIGITS);
    const entries = table.get(index) ?? [];
    entries.push({ owner, digest: Buffer.from(sha256, 'hex') });
    table.set(index, entries);
  }
  return table;
}
