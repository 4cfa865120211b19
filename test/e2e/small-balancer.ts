// A tiny L4 balancer: new connections go to one of the routers that call themselves ready, in turn. It asks as balancers
// do, every now and then, and lets connections that stand be.

import { connect, createServer, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import { request } from 'undici';

/** ms; a router goes on accepting for longer than that after it has said that it leaves. */
const ASK_EVERY_MS = 50;

export interface Backend {
  readonly clientsPort: () => number;
  readonly readyz: () => string;
}

export interface SmallBalancer {
  readonly url: string;
  close(): Promise<void>;
}

export async function startBalancer(backends: readonly Backend[]): Promise<SmallBalancer> {
  const ready = new Set<Backend>();
  const sockets = new Set<Socket>();
  let turn = 0;
  let open = true;
  const server = createServer((from) => {
    const backend = [...ready][turn++ % Math.max(1, ready.size)];
    if (backend === undefined) return void from.destroy();
    const to = connect(backend.clientsPort(), '127.0.0.1');
    for (const socket of [from, to]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on('error', () => undefined);
    }
    from.on('close', () => (sockets.delete(from), to.destroy()));
    to.on('close', () => (sockets.delete(to), from.destroy()));
    from.pipe(to);
    to.pipe(from);
  });
  const look = async (backend: Backend): Promise<void> => {
    const answer = await request(backend.readyz()).catch(() => null);
    await answer?.body.dump();
    if (answer?.statusCode === 200) ready.add(backend);
    else ready.delete(backend);
  };
  const watching = (async () => {
    while (open) {
      await Promise.all(backends.map(look));
      await new Promise((resolve) => setTimeout(resolve, ASK_EVERY_MS));
    }
  })();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      open = false;
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
      await watching;
    },
  };
}
