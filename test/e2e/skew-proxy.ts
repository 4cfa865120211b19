// Between an agent and a router: rewrites each frame as a peer of another release would have sent it.

import type { AddressInfo } from 'node:net';
import { WebSocket, WebSocketServer } from 'ws';
import { decodeAgentMessage, decodeRouterMessage } from '../../shared/protocol/codec.ts';
import {
  least,
  pack,
  unpack,
  withUnknownFields,
  type Decode,
} from '../fixtures/frames/recorded.ts';

/** The frames in place of one. */
export type Rewrite = (frame: Uint8Array) => readonly Uint8Array[];

export const asItIs: Rewrite = (frame) => [frame];

/** First byte of the binary frames, which have no fields. */
const BINARY_MARK = 0xc1;

/** With nothing that may be missing, and without any feature that came later. */
function older(decode: Decode): Rewrite {
  return (frame) => {
    if (frame[0] === BINARY_MARK) return [frame];
    const message = unpack(frame);
    const features = 'features' in message ? { features: [] } : {};
    return [least(pack({ ...message, ...features }), decode)];
  };
}

/** With fields and kinds that nobody knows; they come after the hello and the welcome, which begin a link. */
const newer: Rewrite = (frame) => {
  const strange = [pack({ kind: 'zzNewer', values: [1, 2] }), Uint8Array.of(BINARY_MARK, 0x7f, 1)];
  return frame[0] === BINARY_MARK ? [frame] : [withUnknownFields(frame).frame, ...strange];
};

export const OLDER_AGENT = older(decodeAgentMessage);
export const OLDER_ROUTER = older(decodeRouterMessage);
export const NEWER = newer;

/** Speaks other versions of the protocol than it did. */
export function withProtocol(protocol: unknown): Rewrite {
  return (frame) => {
    if (frame[0] === BINARY_MARK) return [frame];
    const message = unpack(frame);
    return [pack('protocol' in message ? { ...message, protocol } : message)];
  };
}

export interface SkewProxy {
  readonly url: string;
  close(): Promise<void>;
}

export async function startSkewProxy(
  linksPort: number,
  rewrites: { readonly fromAgent: Rewrite; readonly fromRouter: Rewrite },
): Promise<SkewProxy> {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  await new Promise((resolve) => server.once('listening', resolve));
  server.on('connection', (agent, request) => {
    const router = new WebSocket(`ws://127.0.0.1:${linksPort}${request.url ?? '/'}`);
    const waiting: Uint8Array[] = [];
    router.on('open', () => {
      for (const frame of waiting.splice(0)) router.send(frame);
    });
    agent.on('message', (data: Buffer) => {
      for (const frame of rewrites.fromAgent(data)) {
        if (router.readyState === WebSocket.OPEN) router.send(frame);
        else waiting.push(frame);
      }
    });
    router.on('message', (data: Buffer) => {
      for (const frame of rewrites.fromRouter(data)) agent.send(frame);
    });
    join(agent, router);
    join(router, agent);
  });
  return {
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((resolve) => {
        for (const client of server.clients) client.terminate();
        server.close(() => resolve());
      }),
  };
}

/** One ends as the other does. */
function join(one: WebSocket, other: WebSocket): void {
  one.on('error', () => undefined);
  one.on('close', (code, reason) => {
    // Codes below 3000 but 1000 are not for applications to send.
    if (code === 1_000 || code >= 3_000) other.close(code, reason);
    else other.terminate();
  });
}
