import { createServer, type AddressInfo, type Server } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { waitFor } from '../../test/engines/wait.ts';
import { CELLS, IDLE_1000, JSON_16, STREAMS_64 } from './cells.ts';
import { faultOf, Load, startMs, streamMs, type LoadResult, type LoadShape } from './load.ts';
import { startReplica } from './replica.ts';
import { requestTemplate } from './request-template.ts';

const starts = (shape: typeof STREAMS_64): number[] =>
  Array.from({ length: shape.concurrency }, (_, index) => startMs(shape, index));

/** The widest gap between neighbours on a circle, as a multiple of an even spread. */
function widest(points: readonly number[], around: number): number {
  const sorted = points.map((point) => point % around).toSorted((a, b) => a - b);
  const gaps = sorted.map((point, at) => (sorted[at + 1] ?? (sorted[0] ?? 0) + around) - point);
  return (Math.max(...gaps) * points.length) / around;
}

describe('the beginnings of a load', () => {
  it('lie evenly in the length of a stream, so that requests come one by one for ever', () => {
    for (const { shape } of CELLS) {
      if (shape.chunks === null || shape.concurrency === 1) continue;
      expect(widest(starts(shape), streamMs(shape))).toBeLessThan(3);
    }
  });

  it('lie evenly in the gap between two chunks, so that chunks come one by one', () => {
    expect(widest(starts(STREAMS_64), STREAMS_64.gapMs)).toBeLessThan(6);
  });

  it('are at once where answers are not paced', () => {
    expect(new Set(starts(JSON_16))).toEqual(new Set([0]));
  });

  it('all come within the length of a stream', () => {
    expect(Math.max(...starts(IDLE_1000))).toBeLessThan(streamMs(IDLE_1000));
  });
});

const SHORT: LoadShape = { ...STREAMS_64, concurrency: 4, chunks: 3, gapMs: 1, pauseMs: 1 };
const ENOUGH = 40;

describe('a load before a replica', () => {
  const servers: Server[] = [];
  const urlOf = (server: Server): string => {
    servers.push(server);
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  };
  afterEach(() => {
    for (const server of servers.splice(0)) server.close();
  });

  async function served(url: string, shape: LoadShape): Promise<LoadResult> {
    const load = new Load(url, shape);
    load.start();
    const seen: LoadResult[] = [];
    const completed = (): number => seen.reduce((sum, each) => sum + each.completed, 0);
    await waitFor({ what: 'enough answers', limitMs: 20_000, everyMs: 5 }, () => {
      seen.push(load.take());
      return completed() >= ENOUGH ? true : null;
    });
    await load.stop();
    seen.push(load.take());
    return {
      completed: completed(),
      wrong: seen.reduce((sum, { wrong }) => sum + wrong, 0),
      fault: seen.find(({ fault }) => fault !== null)?.fault ?? null,
      ttftMs: seen.flatMap(({ ttftMs }) => ttftMs),
    };
  }

  it('sees each of its answers whole, whatever is asked and however the load is paced', async () => {
    const url = urlOf(await startReplica(0));
    for (const shape of [
      SHORT,
      { ...SHORT, promptBytes: 300_000 },
      JSON_16,
      // More than its connections can always carry: some wait for one.
      { ...SHORT, gapMs: 10, perSecond: 100 },
    ]) {
      const { completed, wrong, fault, ttftMs } = await served(url, shape);
      expect([wrong, fault, ttftMs.length]).toEqual([0, null, completed]);
    }
  });

  it('has a first token for no answer that does not come, and says what came instead', async () => {
    const cutting = createServer((socket) => socket.once('data', () => socket.destroy()));
    await new Promise<void>((resolve) => void cutting.listen(0, '127.0.0.1', resolve));
    const { completed, wrong, fault, ttftMs } = await served(urlOf(cutting), SHORT);
    expect([wrong, ttftMs, fault]).toEqual([completed, [], 'the connection ended']);
  });

  it('takes an answer that is whole as HTTP for wrong where events or its end are missing', () => {
    const tail = 'data: {}\n\ndata: [DONE]\n\n';
    const whole = { status: 200, events: 5, tail };
    expect(faultOf(SHORT, whole)).toBe(null);
    expect(faultOf(SHORT, { ...whole, events: 4 })).toBe('4 events, not 5');
    expect(faultOf(SHORT, { ...whole, tail: 'data: {}\n\n' })).toBe('a stream without [DONE]');
    expect(faultOf(SHORT, { ...whole, status: 502 })).toContain('status 502');
    expect(faultOf(JSON_16, { ...whole, tail: '{"a":' })).toBe('a JSON answer without its end');
  });
});

describe('the requests of a run', () => {
  it('have no two prompts alike, in one load or in two', () => {
    const url = new URL('http://127.0.0.1:1/v1/chat/completions');
    const loads = [requestTemplate(url, JSON_16), requestTemplate(url, JSON_16)];
    const seen = loads.flatMap((next) => [next(), next(), next()].map(String));
    expect(new Set(seen).size).toBe(6);
    for (const text of seen) {
      const [head = '', body = ''] = text.split('\r\n\r\n');
      expect(head).toContain(`content-length: ${body.length}`);
      expect(JSON.parse(body)).toMatchObject({ model: 'bench-model', stream: false });
    }
  });
});
