// The routers of one region as its base URLs lead to them, and which of them the next request goes to.
//
//   endpoints  one a URL; where its name has several addresses, one an address, so that no router is left out and one that
//              dies is told from the others. A name with one address is left to the system, which knows of both families
//   choice     the one with the least under way of those that are not down, in turn where several have as little
//   down       from a connection refused or broken, or no answer in time: DOWN_MS, doubling to DOWN_MAX_MS, until it answers.
//              Where all are, the one that is up soonest

import { isIP } from 'node:net';

const DOWN_MS = 1_000;
const DOWN_MAX_MS = 30_000;

export interface Endpoint {
  /** Names it among all; of two regions with one address, the same. */
  readonly key: string;
  readonly origin: string;
  /** Null: as the system resolves the name. */
  readonly address: string | null;
  failures: number;
  downUntilMs: number;
}

export class RegionEndpoints {
  #all: readonly Endpoint[];
  #turn = 0;

  constructor(urls: readonly URL[]) {
    this.#all = urls.map(({ origin }) => endpoint(origin, null));
  }

  get all(): readonly Endpoint[] {
    return this.#all;
  }

  /** What the names stand for now. Those that stay keep what is known of them. */
  resolved(urls: readonly URL[], addressesOf: (url: URL) => readonly string[]): void {
    const before = new Map(this.#all.map((each) => [each.key, each]));
    const now = urls.flatMap((url) => {
      const addresses = oneFamily(addressesOf(url));
      if (addresses.length < 2) return [endpoint(url.origin, null)];
      return addresses.map((address) => endpoint(url.origin, address));
    });
    const byKey = new Map(now.map((each) => [each.key, before.get(each.key) ?? each]));
    this.#all = [...byKey.values()];
  }

  /** `openOf`: requests under way. */
  pick(nowMs: number, openOf: (endpoint: Endpoint) => number): Endpoint {
    const [only] = this.#all;
    if (this.#all.length === 1 && only !== undefined) return only;
    let best: Endpoint | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (let k = 0; k < this.#all.length; k += 1) {
      const each = this.#all[(this.#turn + k) % this.#all.length] as Endpoint;
      // However much is under way elsewhere, what is down comes after it.
      const open = each.downUntilMs > nowMs ? Number.MAX_VALUE : openOf(each);
      const sooner = open === least && best !== null && each.downUntilMs < best.downUntilMs;
      if (open >= least && !(open === Number.MAX_VALUE && sooner)) continue;
      best = each;
      least = open;
    }
    if (best === null) throw new Error('a region has an endpoint');
    return best;
  }

  /** The next one with as little under way comes first. */
  turn(): void {
    this.#turn = (this.#turn + 1) % Math.max(1, this.#all.length);
  }
}

export function isNamed({ hostname }: URL): boolean {
  return hostname !== 'localhost' && isIP(hostname.replace(/^\[|\]$/g, '')) === 0;
}

export function endpointFailed(endpoint: Endpoint, nowMs: number): void {
  // What was under way there fails together.
  if (endpoint.downUntilMs > nowMs) return;
  endpoint.downUntilMs = nowMs + Math.min(DOWN_MAX_MS, DOWN_MS * 2 ** endpoint.failures);
  endpoint.failures += 1;
}

export function endpointAnswered(endpoint: Endpoint): void {
  endpoint.failures = 0;
  endpoint.downUntilMs = Number.NEGATIVE_INFINITY;
}

function endpoint(origin: string, address: string | null): Endpoint {
  const key = address === null ? origin : `${origin} ${address}`;
  return { key, origin, address, failures: 0, downUntilMs: Number.NEGATIVE_INFINITY };
}

/** Of a router with addresses of both families one is enough. */
function oneFamily(addresses: readonly string[]): readonly string[] {
  // A name of several URLs comes with its addresses once for each of them.
  const all = [...new Set(addresses)];
  const v4 = all.filter((address) => isIP(address) === 4);
  return v4.length > 0 ? v4 : all;
}
