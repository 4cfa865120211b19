// Whether an agent may say that an engine is at the address that it advertises: the address lies in the
// pool's networks, and something beside it knows the link's secret. Otherwise an agent with a valid secret
// could send users' prompts anywhere.
//
//   proof = hex(HMAC-SHA256(link secret, or the agent's id where links need none; nonce))
//
// A replica is named by its address, and the nonce names the agent that is asked: nobody speaks for another's engine,
// nor shows another's answer.
//
// A name is resolved here and again when a request connects; who controls the name's DNS is trusted.

import { createHmac, timingSafeEqual } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { BlockList, isIP } from 'node:net';
import { request } from 'undici';
import type { Hello } from '../../shared/protocol/messages.ts';
import { nonceFor, replicaAt } from '../../shared/runtime/address-proof.ts';
import { randomHex } from '../../shared/runtime/entropy.ts';

const LOOPBACK = ['127.0.0.0/8', '::1/128'];
const PROOF_TIMEOUT_MS = 3_000;
const MAX_PROOF_BYTES = 1_024;
/** Hosts under which one agent may advertise engines: all of them are its own machine. */
const HOSTS_MAX = 16;

export interface ProofRules {
  /** Networks for advertised addresses; empty = loopback only. */
  readonly engineCidrs: readonly string[];
  /** False checks the network only. */
  readonly addressProof: boolean;
  /** Secrets of which the agent must know one; empty = its own id is the key. */
  readonly secrets: readonly string[];
}

export type ProofResult =
  | { readonly ok: true }
  | { readonly ok: false; readonly url: string; readonly detail: string };

/** Checks every engine of a hello. Never rejects. */
export async function proveAddresses(hello: Hello, rules: ProofRules): Promise<ProofResult> {
  const networks = networksOf(rules.engineCidrs.length === 0 ? LOOPBACK : rules.engineCidrs);
  const hosts = new Map<string, string>();
  for (const { advertiseUrl, replica } of hello.engines) {
    const url = parseBase(advertiseUrl);
    const refused = (detail: string) => ({ ok: false, url: advertiseUrl, detail }) as const;
    if (url === null) return refused('not an http(s) base URL');
    if (replica !== replicaAt(url)) return refused('its replica has another name than its address');
    hosts.set(url.hostname.replace(/^\[|\]$/g, ''), advertiseUrl);
    if (hosts.size > HOSTS_MAX) return refused(`one of more than ${HOSTS_MAX} hosts of one agent`);
  }
  const faults = await Promise.all(
    Array.from(hosts, async ([host, url]) => {
      const detail = (await outside(host, networks)) ?? (await unproven(host, hello, rules));
      return detail === null ? null : ({ ok: false, url, detail } as const);
    }),
  );
  return faults.find((fault) => fault !== null) ?? { ok: true };
}

function parseBase(text: string): URL | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) return null;
  const bare = url.pathname === '/' && url.search === '' && url.username === '';
  return bare ? url : null;
}

/** Null when every address of the host is inside. */
async function outside(host: string, networks: BlockList): Promise<string | null> {
  const addresses = isIP(host) === 0 ? await resolved(host) : [host];
  if (addresses.length === 0) return 'its name does not resolve';
  const stray = addresses.find((address) => {
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    return !networks.check(address, family);
  });
  return stray === undefined ? null : `${stray} is outside the pool's engineCidrs`;
}

async function resolved(host: string): Promise<string[]> {
  try {
    return (await lookup(host, { all: true })).map((entry) => entry.address);
  } catch {
    // Reported as a name that does not resolve.
    return [];
  }
}

async function unproven(host: string, hello: Hello, rules: ProofRules): Promise<string | null> {
  if (!rules.addressProof) return null;
  if (hello.proofPort === null) return 'the agent has no listener for the address proof';
  const nonce = nonceFor(hello.agentId, randomHex(16));
  const name = isIP(host) === 6 ? `[${host}]` : host;
  const answer = await fetchProof(`http://${name}:${hello.proofPort}/v1/proof?nonce=${nonce}`);
  if (answer === null) return `no proof from ${name}:${hello.proofPort}`;
  const keys = rules.secrets.length === 0 ? [hello.agentId] : rules.secrets;
  return keys.some((key) => same(answer, proofOf(key, nonce))) ? null : 'its proof is wrong';
}

export function proofOf(key: string, nonce: string): string {
  return createHmac('sha256', key).update(nonce).digest('hex');
}

async function fetchProof(url: string): Promise<string | null> {
  try {
    const answer = await request(url, {
      headersTimeout: PROOF_TIMEOUT_MS,
      bodyTimeout: PROOF_TIMEOUT_MS,
      reset: true,
      signal: AbortSignal.timeout(PROOF_TIMEOUT_MS),
    });
    let text = '';
    for await (const piece of answer.body) {
      text += String(piece);
      if (text.length > MAX_PROOF_BYTES) return null;
    }
    return answer.statusCode === 200 ? text.trim() : null;
  } catch {
    // No answer is no proof; the caller says which address.
    return null;
  }
}

function same(a: string, b: string): boolean {
  const left = Buffer.from(a);
  const right = Buffer.from(b);
  return left.length === right.length && timingSafeEqual(left, right);
}

function networksOf(cidrs: readonly string[]): BlockList {
  const list = new BlockList();
  for (const cidr of cidrs) {
    const [network = '', bits] = cidr.split('/', 2);
    const family = isIP(network) === 6 ? 'ipv6' : 'ipv4';
    const prefix = bits === undefined ? (family === 'ipv6' ? 128 : 32) : Number(bits);
    list.addSubnet(network, prefix, family);
  }
  return list;
}
