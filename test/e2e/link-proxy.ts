// A TCP connection between an agent and a router that a test can disturb: cut it, let nothing through, or let everything
// through late. What is late comes in order.

import { connect, createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';

export type LinkTrouble =
  | { readonly kind: 'none' }
  /** Connections end, and new ones end at once. */
  | { readonly kind: 'cut' }
  /** Connections stand, and what is written into them is lost. */
  | { readonly kind: 'hole' }
  | { readonly kind: 'late'; readonly ms: number };

export class LinkProxy {
  private readonly server: Server;
  private readonly target: () => number;
  private readonly sockets = new Set<Socket>();
  private trouble: LinkTrouble = { kind: 'none' };

  private constructor(target: () => number) {
    this.target = target;
    this.server = createServer((from) => this.join(from));
  }

  /** `target`: the port on this machine to which it leads now. */
  static async open(target: () => number): Promise<LinkProxy> {
    const proxy = new LinkProxy(target);
    await new Promise<void>((resolve) => proxy.server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get url(): string {
    return `ws://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  set(trouble: LinkTrouble): void {
    const before = this.trouble;
    this.trouble = trouble;
    // What a hole has swallowed is missing in the middle of frames: nobody can go on with such a connection.
    if (trouble.kind === 'cut' || before.kind === 'hole') this.cut();
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private cut(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  private join(from: Socket): void {
    if (this.trouble.kind === 'cut') return void from.destroy();
    const to = connect(this.target(), '127.0.0.1');
    this.pass(from, to);
    this.pass(to, from);
  }

  private pass(from: Socket, to: Socket): void {
    const line = new Line(to);
    this.sockets.add(from);
    from.setNoDelay(true);
    from.on('error', () => undefined);
    from.on('close', () => {
      this.sockets.delete(from);
      to.destroy();
    });
    from.on('data', (bytes: Buffer) => {
      const { trouble } = this;
      if (trouble.kind === 'hole') return;
      line.add(bytes, trouble.kind === 'late' ? trouble.ms : 0);
    });
  }
}

/** One direction: nothing overtakes what is late, also when the trouble is over. */
class Line {
  private readonly to: Socket;
  private readonly waiting: { readonly dueMs: number; readonly bytes: Buffer }[] = [];

  constructor(to: Socket) {
    this.to = to;
  }

  add(bytes: Buffer, lateMs: number): void {
    const first = this.waiting.length === 0;
    if (first && lateMs === 0) return void this.to.write(bytes);
    this.waiting.push({ dueMs: performance.now() + lateMs, bytes });
    if (first) setTimeout(() => this.flush(), lateMs);
  }

  private flush(): void {
    for (;;) {
      const [next] = this.waiting;
      if (next === undefined) return;
      const leftMs = next.dueMs - performance.now();
      if (leftMs > 0) return void setTimeout(() => this.flush(), leftMs);
      this.waiting.shift();
      if (this.to.writable) this.to.write(next.bytes);
    }
  }
}
