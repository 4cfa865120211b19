// One address that a child dials: when it is dialled next, and what is said of it.
//
//   retry   100 ms doubling to 2 s, jittered; 10 s after a refusal that only an operator can lift
//   rests   while its router process is linked through another address, or where it leads to this very process
//
// A change of its state is logged once, not every attempt.

import type { Writable } from 'node:stream';
import { WebSocket } from 'ws';
import type { RouterId } from '../model/ids.ts';
import type { PeerTrust } from './http-pool.ts';
import { dialEndpoint, isOperatorsMatter, retryDelayMs } from './link-dial.ts';
import type { LinkEndpoint } from './link-names.ts';
import type { LinkSocket } from './link-socket.ts';
import type { RoleRuntime } from './role.ts';

/** A function is asked at each dial, with how often that address has failed. */
export type LinkSecret = string | null | ((failures: number) => string | null);

interface DialOptions {
  readonly runtime: RoleRuntime;
  readonly secret: LinkSecret;
  readonly trust: PeerTrust | null;
  readonly maxFrameBytes: number;
}

export interface AddressOwner {
  /** Whether it is to be dialled now; counted where it is. */
  attempt(address: LinkAddress): boolean;
  /** Whether it is to be dialled at all. */
  keeps(address: LinkAddress): boolean;
  /** Whether a router has welcomed a link to another address of this URL. */
  isLinked(url: string): boolean;
  opened(address: LinkAddress, connection: { socket: WebSocket; stream: Writable }): void;
}

const CLOSE_WAIT_MS = 1_500;

export class LinkAddress {
  endpoint: LinkEndpoint;
  /** Null: no link to it stands. */
  link: LinkSocket | null = null;
  /** It leads to this very process: the addresses of its further workers. Null: it does not. */
  selfSiblings: readonly URL[] | null = null;
  readonly #options: DialOptions;
  readonly #owner: AddressOwner;
  #routerId: RouterId | null = null;
  #socket: WebSocket | null = null;
  #failures = 0;
  /** What was logged last about it. */
  #state = '';
  #cancelRetry: (() => void) | null = null;

  constructor(endpoint: LinkEndpoint, options: DialOptions, owner: AddressOwner) {
    this.endpoint = endpoint;
    this.#options = options;
    this.#owner = owner;
  }

  /** The router process that answered here last. */
  get routerId(): RouterId | null {
    return this.#routerId;
  }

  get rests(): boolean {
    const closed = this.#socket?.readyState === WebSocket.CLOSED;
    return closed && this.link === null && this.#cancelRetry === null;
  }

  dial(): void {
    const { secret, trust, maxFrameBytes } = this.#options;
    this.#cancelRetry = null;
    if (!this.#owner.attempt(this)) return;
    this.#socket = dialEndpoint({
      endpoint: this.endpoint,
      secret: typeof secret === 'function' ? secret(this.#failures) : secret,
      trust,
      maxFrameBytes,
      onOpen: (socket, stream) => this.#owner.opened(this, { socket, stream }),
      onFail: (reason, detail) => this.retry(reason, detail),
    });
  }

  leadsTo(routerId: RouterId, software: string): void {
    this.#routerId = routerId;
    this.#changed(`connected ${routerId}`, () => {
      this.log('info', 'linked to router', { routerId, software });
    });
  }

  /** Its next failure is the first. */
  settled(): void {
    this.#failures = 0;
  }

  retry(reason: string, detail: string | null = null): void {
    if (this.selfSiblings !== null || !this.#owner.keeps(this)) return;
    const { timers, random } = this.#options.runtime;
    this.#failures += 1;
    if (reason !== 'duplicate') this.#announceDown(reason, detail);
    this.#cancelRetry?.();
    const delayMs = retryDelayMs(this.#failures, reason, random);
    this.#cancelRetry = timers.after(delayMs, () => this.dial());
  }

  /** No name leads to it any more. */
  vanish(): void {
    this.#cancelRetry?.();
    if (this.link === null) {
      this.#socket?.terminate();
      return;
    }
    this.log('info', 'router address vanished');
    this.link.close('shutting_down');
  }

  /** Until its connection is closed. It is dialled no more. */
  async gone(): Promise<void> {
    this.#cancelRetry?.();
    const socket = this.#socket;
    if (socket === null || socket.readyState === WebSocket.CLOSED) return;
    if (socket.readyState === WebSocket.CONNECTING) socket.terminate();
    await new Promise<void>((resolve) => {
      const cancel = this.#options.runtime.timers.after(CLOSE_WAIT_MS, () => socket.terminate());
      socket.once('close', () => {
        cancel();
        resolve();
      });
    });
  }

  log(level: 'debug' | 'info' | 'warn', text: string, more: object = {}): void {
    const { url, address } = this.endpoint;
    this.#options.runtime.log[level]({ url: url.href, address, ...more }, text);
  }

  /** One failed attempt says little; an address of a name that is linked through another one is nobody's worry. */
  #announceDown(reason: string, detail: string | null): void {
    const passing = this.#failures === 1 && !isOperatorsMatter(reason);
    if (passing && !this.#state.startsWith('connected')) return;
    const linked = this.#owner.isLinked(this.endpoint.url.href);
    const fields = detail === null ? { reason } : { reason, problem: detail };
    this.#changed(`down ${reason} ${detail}`, () => {
      this.log(linked ? 'debug' : 'warn', 'no link to router', fields);
    });
  }

  #changed(state: string, announce: () => void): void {
    if (this.#state === state) return;
    this.#state = state;
    announce();
  }
}
