// What whoever asks for a link may speak for, by what it shows and by the rules of that moment.

import type { IncomingMessage } from 'node:http';
import type { Clock } from './clock.ts';
import { grantFor, type LinkGrant, type LinkRules, type Presented } from './link-credentials.ts';
import { peerCertificate } from './tls-peer.ts';
import type { ClientAuth, ServerTls } from './tls-server.ts';

export interface LinkGateOptions {
  /** Null: links come without TLS. */
  readonly tls: ServerTls | null;
  readonly clock: Clock;
  /** Read at each upgrade, so that a reload counts at once. */
  readonly rules: () => Omit<LinkRules, 'clientAuth'>;
}

/** Who asks for a link. */
export interface Entrant {
  readonly shown: Presented;
  readonly grant: LinkGrant;
  /** It showed a certificate that the listener accepts. */
  readonly certified: boolean;
  /** The URL that it dialled, without a path; null where it did not say. */
  readonly reachedAt: string | null;
}

export class LinkGate {
  readonly #options: LinkGateOptions;
  /** By which all that stand were let in, or looked at since. */
  #written = '';

  constructor(options: LinkGateOptions) {
    this.#options = options;
  }

  get clientAuth(): ClientAuth {
    return this.#options.tls?.clientAuth ?? 'none';
  }

  entrant({ socket, headers }: IncomingMessage): Entrant {
    const certificate = peerCertificate(socket, this.#options.clock.wallMs());
    const { authorization, host } = headers;
    const shown = { authorization, remoteAddress: socket.remoteAddress ?? '', certificate };
    return {
      shown,
      grant: grantFor(this.#rules(), shown),
      certified: this.clientAuth !== 'none' && certificate.kind === 'valid',
      reachedAt: this.#reachedAt(host),
    };
  }

  /** What the rules grant now, where they have changed since this was last asked; else null. */
  changed(): ((shown: Presented) => LinkGrant) | null {
    const rules = this.#rules();
    const written = JSON.stringify(rules);
    if (written === this.#written) return null;
    this.#written = written;
    return (shown) => grantFor(rules, shown);
  }

  #rules(): LinkRules {
    return { ...this.#options.rules(), clientAuth: this.clientAuth };
  }

  #reachedAt(host: string | undefined): string | null {
    const scheme = this.#options.tls === null ? 'ws' : 'wss';
    const url = host === undefined ? null : URL.parse(`${scheme}://${host}`);
    return url === null || url.host === '' ? null : `${url.protocol}//${url.host}`;
  }
}
