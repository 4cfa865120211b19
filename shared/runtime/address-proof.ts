// Proof that an agent sits where it says: the router asks the advertised host for the HMAC of a one-time nonce,
// and only who holds the link's secret can answer. Without a secret (links on this machine only) the key is the
// agent's id, which proves that the answer comes from the process that said hello.

import { createHmac } from 'node:crypto';

/** Hex HMAC-SHA256 of `nonce`. */
export function addressProof(linkSecret: string | null, agentId: string, nonce: string): string {
  return createHmac('sha256', linkSecret ?? agentId)
    .update(nonce, 'utf8')
    .digest('hex');
}

/** Nonces are short and plain: nothing else is signed for whoever asks. */
export function isProofNonce(text: string): boolean {
  return /^[0-9a-zA-Z_-]{16,128}$/.test(text);
}
