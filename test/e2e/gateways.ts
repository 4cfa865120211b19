// The gateways of a test file and the scripted engines behind them, closed after each test, gateways first; and a raw
// connection to one.

import { connect, type Socket } from 'node:net';
import { afterEach } from 'vitest';
import { startScriptedEngine, type Script, type ScriptedEngine } from './scripted-engine.ts';
import { startHarness, type Harness } from './shell-harness.ts';

export interface Gateways {
  readonly engineWith: (script: Script) => Promise<ScriptedEngine>;
  /** In front of these engines, or of whatever is at these URLs. */
  readonly gateway: (
    engines?: readonly (ScriptedEngine | string)[],
    changes?: Parameters<typeof startHarness>[1],
  ) => Promise<Harness>;
}

/** To be called at the top of a test file. */
export function openGateways(): Gateways {
  const open: { close(): Promise<void> }[] = [];
  afterEach(async () => {
    await Promise.all(open.splice(0).map((each) => each.close()));
  });
  return {
    async engineWith(script) {
      const engine = await startScriptedEngine(script);
      open.push(engine);
      return engine;
    },
    async gateway(engines = [], changes = {}) {
      const urls = engines.map((engine) => (typeof engine === 'string' ? engine : engine.url));
      const harness = await startHarness(urls, changes);
      open.unshift(harness);
      return harness;
    },
  };
}

/** A raw connection that keeps everything it receives. */
export function rawly(
  harness: Harness,
  text: string,
): { readonly socket: Socket; readonly received: () => string } {
  const socket = connect(Number(new URL(harness.url).port), '127.0.0.1');
  let received = '';
  socket.on('data', (piece: Buffer) => (received += piece.toString()));
  socket.on('error', () => undefined);
  socket.write(text);
  return { socket, received: () => received };
}
