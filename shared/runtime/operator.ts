// Who may tell a running part to do something, over a listener whose answers are otherwise free to read: somebody on this
// machine, somebody whose certificate the listener has checked, or somebody who has a secret of the links.
//
// A page in a browser is on this machine too and is nobody: browsers name its origin, other clients do not.

import type { IncomingMessage } from 'node:http';
import { createHash, timingSafeEqual } from 'node:crypto';
import { isLoopback } from '../config/address.ts';

export type OperatorVerdict = 'allowed' | 'page' | 'unknown';

export interface OperatorProof {
  /** Of the links; any of them will do. */
  readonly secrets: readonly string[];
  /** The listener has checked a certificate. */
  readonly certified: boolean;
}

export function operatorVerdict(request: IncomingMessage, proof: OperatorProof): OperatorVerdict {
  const { headers, socket } = request;
  if (headers.origin !== undefined) return 'page';
  const address = (socket.remoteAddress ?? '').replace(/^::ffff:/, '');
  if (proof.certified || isLoopback(address)) return 'allowed';
  const shown = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1];
  if (shown === undefined) return 'unknown';
  const presented = digest(shown);
  const known = proof.secrets.filter((secret) => timingSafeEqual(digest(secret), presented));
  return known.length > 0 ? 'allowed' : 'unknown';
}

/** What to say to who may not. */
export const OPERATOR_REFUSALS: Readonly<Record<Exclude<OperatorVerdict, 'allowed'>, string>> = {
  page: 'Not for pages in browsers.',
  unknown: 'From another machine the secret of the links is needed: Authorization: Bearer …',
};

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
