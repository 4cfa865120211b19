// Proof that an agent sits where it says: the router asks the advertised host for the HMAC of a one-time nonce,
// and only who holds the link's secret can answer. Without a secret (links on this machine only) the key is the
// agent's id, which proves that the answer comes from the process that said hello.

import { createHmac } from 'node:crypto';
import type { ReplicaId } from '../model/ids.ts';

/** Hex HMAC-SHA256 of `nonce`. */
export function addressProof(linkSecret: string | null, agentId: string, nonce: string): string {
  return createHmac('sha256', linkSecret ?? agentId)
    .update(nonce, 'utf8')
    .digest('hex');
}

/**
 * A nonce for one agent: another that is asked does not answer, so that nobody shows the answer of a neighbour for its
 * own. Agents of earlier versions answer whatever they are asked.
 */
export function nonceFor(agentId: string, random: string): string {
  return /^[0-9a-zA-Z_]{1,64}$/.test(agentId) ? `${random}-${agentId}` : random;
}

/** Whether a nonce is for this agent, or for whoever answers. */
export function isNonceFor(agentId: string, nonce: string): boolean {
  const dash = nonce.indexOf('-');
  return dash < 0 || nonce.slice(dash + 1) === agentId;
}

/** The replica's id: host and port of the advertised URL, so that no other engine can be meant by it. */
export function replicaAt(advertised: URL): ReplicaId {
  const { hostname, port, protocol } = advertised;
  return `${hostname}:${port === '' ? (protocol === 'https:' ? '443' : '80') : port}` as ReplicaId;
}

/** Nonces are short and plain: nothing else is signed for whoever asks. */
export function isProofNonce(text: string): boolean {
  return /^[0-9a-zA-Z_-]{16,128}$/.test(text);
}
