// A TCP proxy that keeps every byte that passes towards its target, to be searched.

import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export class RecordingProxy {
  readonly #towards: Buffer[] = [];
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((near) => this.#join(near));
  /** Port behind it; null: nobody is there, and connections are cut. */
  target: number | null = null;

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Bytes that went towards the target so far. */
  get bytes(): number {
    return this.#towards.reduce((sum, { length }) => sum + length, 0);
  }

  async listen(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return this;
  }

  /** Whether the text went towards the target, in one piece or several, plain or in base64 at any offset. */
  saw(text: string): boolean {
    const all = Buffer.concat(this.#towards);
    return [text, ...inBase64(text)].some((each) => all.includes(each));
  }

  /** What is open ends, and nobody is behind it any more. */
  cut(): void {
    this.target = null;
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
    });
  }

  #join(near: Socket): void {
    this.#sockets.add(near);
    near.on('error', () => undefined);
    near.once('close', () => this.#sockets.delete(near));
    near.on('data', (piece: Buffer) => this.#towards.push(piece));
    if (this.target === null) return void near.destroy();
    const far = connect(this.target, '127.0.0.1');
    this.#sockets.add(far);
    far.on('error', () => undefined);
    far.once('close', () => {
      this.#sockets.delete(far);
      near.destroy();
    });
    near.once('close', () => far.destroy());
    near.pipe(far);
    far.pipe(near);
  }
}

/** What stays the same of it whatever stands before: the characters that are of its bytes alone. */
function inBase64(text: string): string[] {
  return [0, 1, 2].map((before) => {
    const encoded = Buffer.from(`${'x'.repeat(before)}${text}`).toString('base64url');
    return encoded.slice(before === 0 ? 0 : before + 1, -3);
  });
}
