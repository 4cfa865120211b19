// The floor of the ladder: a router in Node without any routing. Body whole, parsed once, sent to the replicas in turn
// with undici's dispatch, answer passed on as it comes, with back-pressure.
//
//   node bench/proxy/forwarder.ts PORT REPLICA…

import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import { Pool, type Dispatcher } from 'undici';

const [port = '0', ...replicas] = process.argv.slice(2);
const pools = replicas.map(
  (replica) => new Pool(`http://127.0.0.1:${replica}`, { connections: 1_024 }),
);
let turn = 0;

class Passing implements Dispatcher.DispatchHandler {
  private readonly response: ServerResponse;

  constructor(response: ServerResponse) {
    this.response = response;
  }

  onRequestStart(): void {}

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    const { 'content-type': type, 'content-length': length } = headers;
    this.response.writeHead(status, {
      ...(typeof type === 'string' ? { 'content-type': type } : {}),
      ...(length === undefined ? {} : { 'content-length': Number(length) }),
    });
  }

  onResponseData(controller: Dispatcher.DispatchController, piece: Buffer): void {
    if (this.response.write(piece)) return;
    controller.pause();
    this.response.once('drain', () => controller.resume());
  }

  onResponseEnd(): void {
    this.response.end();
  }

  onResponseError(): void {
    this.response.destroy();
  }
}

function forward(request: IncomingMessage, response: ServerResponse): void {
  const pieces: Buffer[] = [];
  request.on('data', (piece: Buffer) => pieces.push(piece));
  request.on('end', () => {
    const body = Buffer.concat(pieces);
    if (body.length > 0) JSON.parse(body.toString('utf8'));
    const pool = pools[turn++ % pools.length] as Pool;
    pool.dispatch(
      {
        method: request.method as 'POST' | 'GET',
        path: request.url ?? '/',
        headers: body.length > 0 ? { 'content-type': 'application/json' } : {},
        body: body.length > 0 ? body : null,
      },
      new Passing(response),
    );
  });
}

createServer({ noDelay: true, keepAliveTimeout: 600_000 }, forward).listen(
  Number(port),
  '127.0.0.1',
);
