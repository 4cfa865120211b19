// What `up` can say about an engine's URL before anything is sent: its form, whether its name has an address, and
// whether two URLs mean one engine.

import { lookup } from 'node:dns/promises';
import { networkInterfaces } from 'node:os';
import { baseUrlProblem } from '../../shared/config/fields.ts';
import { isLoopback } from '../../shared/config/address.ts';

export type AddressResult =
  | { readonly ok: true; readonly url: string; readonly key: string }
  | { readonly ok: false; readonly problem: string };

/** `key` is equal for two URLs of one listener: names are resolved, this machine's own addresses are one. */
export async function engineAddress(text: string): Promise<AddressResult> {
  const hint = schemeHint(text);
  if (hint !== null) return { ok: false, problem: `${text}: ${hint}` };
  const problem = baseUrlProblem(text, ['http', 'https']);
  if (problem !== null) return { ok: false, problem: `${text}: ${pathHint(text, problem)}` };
  const url = new URL(text);
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const port = url.port === '' ? (url.protocol === 'https:' ? '443' : '80') : url.port;
  try {
    const { address } = await lookup(host);
    return { ok: true, url: url.origin, key: `${ownAddress(address) ? 'here' : address}:${port}` };
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    return { ok: false, problem: `${text}: the name ${host} has no address (${code})` };
  }
}

function schemeHint(text: string): string | null {
  if (/^https?:\/\//i.test(text)) return null;
  return /^[^/\s]+:\d+/.test(text) ? `has no scheme; write http://${text}` : null;
}

function pathHint(text: string, problem: string): string {
  if (!URL.canParse(text)) return problem;
  const url = new URL(text);
  return /^\/v1\/?$/.test(url.pathname)
    ? `ends in ${url.pathname}, which Spillway adds itself; write ${url.origin}`
    : problem;
}

function ownAddress(address: string): boolean {
  if (isLoopback(address)) return true;
  const own = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return own.some((face) => face.address === address);
}
