// Which addresses a list of link URLs stands for. A host name stands for all its addresses and is resolved again
// every `intervalMs`; a name that cannot be resolved keeps the addresses that it had.

import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import type { Logger } from './log.ts';

/** All addresses of a host name; throws where there are none. */
export type Resolve = (host: string) => Promise<readonly string[]>;

export const systemResolve: Resolve = async (host) => {
  const found = await lookup(host, { all: true, verbatim: true });
  return found.map((entry) => entry.address);
};

/** One address to dial. */
export interface LinkEndpoint {
  /** Protocol, address and port: two URLs with the same key are one endpoint. */
  readonly key: string;
  readonly address: string;
  /** As written: the TLS name, Host header and path come from it. */
  readonly url: URL;
}

/** Null where `text` is no ws or wss URL. The path is `/link` unless one is written. */
export function parseLinkUrl(text: string): URL | null {
  const url = URL.parse(text);
  if (url === null || (url.protocol !== 'ws:' && url.protocol !== 'wss:')) return null;
  if (url.pathname === '/') url.pathname = '/link';
  return url;
}

const MAX_ADDRESSES = 64;

export class LinkNames {
  readonly #resolve: Resolve;
  readonly #log: Logger;
  readonly #known = new Map<string, readonly string[]>();
  readonly #unresolved = new Set<string>();

  constructor(resolve: Resolve, log: Logger) {
    this.#resolve = resolve;
    this.#log = log;
  }

  /** Endpoints of all `urls`, each once. */
  async endpoints(urls: readonly URL[]): Promise<Map<string, LinkEndpoint>> {
    const hosts = new Set(urls.map((url) => hostOf(url)));
    await Promise.all([...hosts].map((host) => this.#refresh(host)));
    for (const host of this.#known.keys()) if (!hosts.has(host)) this.#known.delete(host);
    for (const host of this.#unresolved) if (!hosts.has(host)) this.#unresolved.delete(host);
    const endpoints = new Map<string, LinkEndpoint>();
    for (const url of urls) {
      for (const address of this.#known.get(hostOf(url)) ?? []) {
        const key = `${url.protocol}//${address}|${portOf(url)}`;
        if (!endpoints.has(key)) endpoints.set(key, { key, address, url });
      }
    }
    return endpoints;
  }

  async #refresh(host: string): Promise<void> {
    if (isIP(host) !== 0) {
      this.#known.set(host, [host]);
      return;
    }
    try {
      const addresses = await this.#resolve(host);
      this.#known.set(host, [...new Set(addresses)].slice(0, MAX_ADDRESSES));
      if (this.#unresolved.delete(host)) this.#log.info({ host }, 'router name resolves again');
    } catch (error) {
      if (this.#unresolved.has(host)) return;
      this.#unresolved.add(host);
      const code = (error as { code?: unknown }).code ?? 'unknown';
      this.#log.warn({ host, code }, 'router name does not resolve');
    }
  }
}

function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '');
}

function portOf(url: URL): string {
  return url.port === '' ? (/^(?:wss|https):$/.test(url.protocol) ? '443' : '80') : url.port;
}
