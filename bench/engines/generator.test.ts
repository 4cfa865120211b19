import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { doorOf, hold } from './generator.ts';
import type { Talk, Workload } from './workload.ts';

let server: Server;
afterEach(() => new Promise((resolve) => server.close(resolve)));

/** Answers each request by its number, in a stream as engines send them. */
async function listen(
  statusOf: (count: number) => number,
): Promise<{ url: string; asked: IncomingMessage[] }> {
  const asked: IncomingMessage[] = [];
  server = createServer((request, response) => {
    asked.push(request);
    const status = statusOf(asked.length);
    request.resume().on('end', () => {
      response.writeHead(status, { 'x-spillway-replica': 'a', 'retry-after-ms': '1' });
      response.end(
        status === 200
          ? 'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"length"}]}\n\ndata: [DONE]\n\n'
          : 'no',
      );
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

function talk(index: number, turns: number): Talk {
  const turn = { thinkMs: 1, door: 0.5, body: Buffer.from('{}') };
  return {
    index,
    startAtMs: 0,
    session: `s${index}`,
    shared: false,
    turns: Array(turns).fill(turn),
  };
}

describe('holding conversations', () => {
  it('sends every turn of every conversation, each with its session, and says what came', async () => {
    const { url, asked } = await listen(() => 200);
    const workload: Workload = { talks: [talk(0, 2), talk(1, 3)], digest: '' };
    const { turns, runMs } = await hold(workload, [url]);
    expect(turns.map(({ conversation, turn }) => `${conversation}/${turn}`)).toEqual([
      '0/0',
      '0/1',
      '1/0',
      '1/1',
      '1/2',
    ]);
    expect(
      turns.every(({ error, replica, ttftMs }) => error === null && replica === 'a' && ttftMs! > 0),
    ).toBe(true);
    const sessions = asked.map(({ headers }) => headers['x-session-id']);
    expect(sessions.filter((session) => session === 's0')).toHaveLength(2);
    expect(sessions.filter((session) => session === 's1')).toHaveLength(3);
    expect(runMs).toBeGreaterThan(0);
  });

  it('goes on after a failed turn, so that every arm is asked the same', async () => {
    const { url } = await listen((count) => (count === 2 ? 400 : 200));
    const { turns } = await hold({ talks: [talk(0, 3)], digest: '' }, [url]);
    expect(turns.map(({ error }) => error)).toEqual([null, 'status 400: no', null]);
  });

  it('comes again twice after a refusal, and says how often', async () => {
    const { url, asked } = await listen((count) => (count < 3 || count > 5 ? 503 : 200));
    const { turns } = await hold({ talks: [talk(0, 4)], digest: '' }, [url]);
    expect(turns.map(({ retries }) => retries)).toEqual([2, 0, 0, 2]);
    expect(turns.map(({ error }) => error)).toEqual([null, null, null, 'status 503: no']);
    const counts = asked.map(({ headers }) => headers['x-stainless-retry-count']);
    expect(counts).toEqual(['0', '1', '2', '0', '0', '0', '1', '2']);
  });

  it('goes through the door that a turn drew', () => {
    server = createServer().listen(0);
    const doors = ['http://a/', 'http://b/'].map((url) => new URL(url));
    const of = (door: number): string => doorOf({ door }, doors).host;
    expect([of(0), of(0.49), of(0.5), of(0.999)]).toEqual(['a', 'a', 'b', 'b']);
  });
});
