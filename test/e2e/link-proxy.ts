// A TCP connection between two processes of ours that a test can disturb: cut it, let nothing through, or let what is written
// through late, some of it late, or held until there is a pause. What is late comes in order.

import { connect, createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';

export type LinkTrouble =
  | { readonly kind: 'none' }
  /** Connections end, and new ones end at once. */
  | { readonly kind: 'cut' }
  /** Connections stand, and what is written into them is lost. */
  | { readonly kind: 'hole' }
  | { readonly kind: 'late'; readonly ms: number }
  /** Of what is written, every `nth` piece is lost, and comes again after `ms`: all behind it waits, as TCP has it. */
  | { readonly kind: 'lossy'; readonly nth: number; readonly ms: number }
  /** A hop that buffers: what comes is held until nothing more has come for `quietMs`. */
  | { readonly kind: 'held'; readonly quietMs: number };

export class LinkProxy {
  private readonly server: Server;
  private readonly target: () => number;
  private readonly sockets = new Set<Socket>();
  private trouble: LinkTrouble = { kind: 'none' };
  private pieces = 0;

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

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  get url(): string {
    return `ws://127.0.0.1:${this.port}`;
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

  private lateMs(): number {
    const { trouble } = this;
    if (trouble.kind === 'late') return trouble.ms;
    if (trouble.kind !== 'lossy') return 0;
    this.pieces += 1;
    return this.pieces % trouble.nth === 0 ? trouble.ms : 0;
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
      if (trouble.kind === 'held') return line.hold(bytes, trouble.quietMs);
      line.add(bytes, this.lateMs());
    });
  }
}

/** One direction: nothing overtakes what is late, also when the trouble is over. */
class Line {
  private readonly to: Socket;
  private readonly waiting: { readonly dueMs: number; readonly bytes: Buffer }[] = [];
  private held: Buffer[] = [];
  private quiet: NodeJS.Timeout | undefined;

  constructor(to: Socket) {
    this.to = to;
  }

  add(bytes: Buffer, lateMs: number): void {
    const first = this.waiting.length === 0;
    if (first && lateMs === 0) return void this.to.write(bytes);
    this.waiting.push({ dueMs: performance.now() + lateMs, bytes });
    if (first) setTimeout(() => this.flush(), lateMs);
  }

  hold(bytes: Buffer, quietMs: number): void {
    this.held.push(bytes);
    clearTimeout(this.quiet);
    this.quiet = setTimeout(() => {
      this.add(Buffer.concat(this.held), 0);
      this.held = [];
    }, quietMs);
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
