// Whom a parent's side of links turns away, and what it cannot read: counted, and said in the log. A child dials again and
// again: the same words come once a minute.

import type { Duplex } from 'node:stream';
import { SaidLately } from '../lib/said-lately.ts';
import type { LinkId } from '../model/ids.ts';
import type { Clock } from './clock.ts';
import type { Presented } from './link-credentials.ts';
import type { LinkFault } from './link-socket.ts';
import type { Logger } from './log.ts';
import type { ClientAuth } from './tls-server.ts';

/** Totals since the start. */
export interface RefusalCounts {
  /** Connections that did not become links: no upgrade, no secret, too many. */
  readonly refusedUpgrades: number;
  readonly malformed: number;
  readonly unknownKinds: number;
  readonly unknownFields: number;
}

/** A link that is, as the log names it. */
interface Named {
  readonly link: LinkId;
  readonly remoteAddress: string;
}

export class LinkRefusals {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #said = new SaidLately();
  readonly #counts = { refusedUpgrades: 0, malformed: 0, unknownKinds: 0, unknownFields: 0 };

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  counts(): RefusalCounts {
    return { ...this.#counts };
  }

  refusedOne(): void {
    this.#counts.refusedUpgrades += 1;
  }

  /** A head may be wrong in more than one way: it is refused once. */
  refuse(stream: Duplex, status: string): void {
    if (stream.writableEnded) return;
    this.refusedOne();
    end(stream, status);
  }

  overrun(limit: 'connections' | 'links' | 'pending', most: number, remoteAddress = ''): void {
    this.refusedOne();
    this.#once(`${limit} ${remoteAddress}`, () => {
      this.#log.warn({ limit, most, remoteAddress }, 'link refused: too many');
    });
  }

  full(stream: Duplex, most: number, remoteAddress: string): void {
    this.overrun('links', most, remoteAddress);
    end(stream, '503 Service Unavailable');
  }

  unauthorized(stream: Duplex, shown: Presented, clientAuth: ClientAuth): void {
    const { authorization, remoteAddress } = shown;
    const certificate = certificateProblem(shown, clientAuth);
    if (certificate !== null) {
      this.#once(certificate, () => {
        this.#log.warn({ remoteAddress, problem: certificate }, 'link refused: certificate');
      });
    } else {
      const problem = authorization === undefined ? 'none was shown' : 'none that counts here';
      this.#once(`secret ${remoteAddress}`, () => {
        this.#log.warn({ remoteAddress, problem }, 'link refused: secret');
      });
    }
    this.refuse(stream, '401 Unauthorized');
  }

  /** No hello, or no verdict about it, in time. */
  late({ link, remoteAddress }: Named, phase: string): void {
    this.#once(`late ${remoteAddress} ${phase}`, () => {
      this.#log.warn({ link, remoteAddress, phase }, 'link closed: no hello in time');
    });
  }

  fault({ link, remoteAddress }: Named, { reason, detail }: LinkFault): void {
    if (reason === 'bad_frame') this.#counts.malformed += 1;
    const text = reason === 'bad_frame' ? 'link closed: bad frame' : 'link closed: flooded';
    this.#once(`${text} ${remoteAddress} ${detail}`, () => {
      this.#log.warn({ link, remoteAddress, reason, detail }, text);
    });
  }

  unknownKind(): void {
    this.#counts.unknownKinds += 1;
  }

  unknownFields(fields: number): void {
    this.#counts.unknownFields += fields;
  }

  #once(words: string, warn: () => void): void {
    if (this.#said.due(words, this.#clock.nowMs())) warn();
  }
}

/** Null: its certificate is not what keeps it out. */
function certificateProblem({ certificate }: Presented, clientAuth: ClientAuth): string | null {
  if (clientAuth === 'none') return null;
  if (certificate.kind === 'invalid') return certificate.problem;
  return certificate.kind === 'none' && clientAuth === 'required' ? 'none was shown' : null;
}

/** Destroyed as soon as the answer is on its way: a peer that never closes would keep the connection for ever. */
function end(stream: Duplex, status: string): void {
  stream.once('finish', () => stream.destroy());
  stream.end(`HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
}
