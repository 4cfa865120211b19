// A wire between one client and the router: bytes pass as they are, and what went over it is kept. It shows what a client
// library really does (its attempts, and when), and it can break as a network does.
//
// An attempt is a piece from the client that begins with a request line: a client sends the next request of a connection only
// after the answer to the one before.

import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export interface ClientAttempt {
  readonly atMs: number;
  /** Request line and headers. */
  readonly head: string;
}

export interface Tap {
  readonly url: string;
  readonly attempts: readonly ClientAttempt[];
  /** All that went to the client so far. */
  answered(): string;
  /** Ends what is open: `reset` by RST, `end` by FIN, as when a process dies in an orderly kernel. */
  cut(how: 'reset' | 'end'): void;
  close(): Promise<void>;
}

const REQUEST_LINE = /^(?:GET|POST|HEAD|DELETE) \/\S* HTTP\/1\.1\r\n/;

export async function openTap(routerUrl: string): Promise<Tap> {
  const { hostname, port } = new URL(routerUrl);
  const clients = new Set<Socket>();
  const attempts: ClientAttempt[] = [];
  let answered = '';
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (client) => {
    const router = connect({ host: hostname, port: Number(port), noDelay: true });
    clients.add(client);
    client.on('data', (piece: Buffer) => {
      const text = piece.toString('latin1');
      if (REQUEST_LINE.test(text)) {
        const head = text.slice(0, text.indexOf('\r\n\r\n'));
        attempts.push({ atMs: performance.now(), head });
      }
      router.write(piece);
    });
    router.on('data', (piece: Buffer) => {
      answered += piece.toString('utf8');
      client.write(piece);
    });
    router.on('end', () => client.end());
    client.on('end', () => router.end());
    router.on('error', () => client.resetAndDestroy());
    client.on('error', () => router.destroy());
    client.on('close', () => {
      clients.delete(client);
      router.destroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    attempts,
    answered: () => answered,
    cut(how) {
      for (const client of clients) {
        if (how === 'reset') client.resetAndDestroy();
        else client.destroySoon();
      }
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const client of clients) client.destroy();
      }),
  };
}
