import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { fakeAgent, fakeRouter } from './link-fakes.ts';
import { LinkSlices } from './link-slices.ts';

test('work of one turn ends when its time is over, and what is left goes on in the next, in order', async () => {
  let nowMs = 0;
  const slices = new LinkSlices(() => nowMs);
  const done: string[] = [];
  const work = (name: string, ms: number) => () => {
    done.push(name);
    nowMs += ms;
  };
  const bring = (name: string, ms: number): void => {
    if (slices.isOver('links')) slices.later('links', work(name, ms));
    else slices.run(work(name, ms));
  };
  for (const name of ['a', 'b', 'c', 'd', 'e']) bring(name, 1.5);
  expect(done).toEqual(['a', 'b']);
  await turn();
  expect(done).toEqual(['a', 'b', 'c', 'd']);
  await turn();
  bring('f', 1);
  expect(done).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
});

test('one piece of work that takes long holds the next back, whatever it is itself', async () => {
  let nowMs = 0;
  const slices = new LinkSlices(() => nowMs);
  slices.run(() => (nowMs += 100));
  expect([slices.isOver('links'), slices.isOver('bodies')]).toEqual([true, true]);
  await turn();
  await turn();
  expect([slices.isOver('links'), slices.isOver('bodies')]).toEqual([false, false]);
});

test('bodies go before messages that wait, one of those a turn whatever the bodies take', async () => {
  let nowMs = 0;
  const slices = new LinkSlices(() => nowMs);
  const done: string[] = [];
  const work = (name: string, ms: number) => () => {
    done.push(name);
    nowMs += ms;
  };
  slices.run(work('first', 5));
  for (const name of ['m1', 'm2', 'm3']) slices.later('links', work(name, 1));
  for (const name of ['b1', 'b2']) slices.later('bodies', work(name, 5));
  expect(slices.isOver('bodies')).toBe(true);
  await turn();
  expect(done).toEqual(['first', 'b1', 'm1']);
  await turn();
  expect(done).toEqual(['first', 'b1', 'm1', 'b2', 'm2']);
  // Its turn has no time left, but the next body waits for no message.
  await turn();
  expect(done.slice(5)).toEqual(['m3']);
  slices.later('links', work('m4', 1));
  expect([slices.isOver('links'), slices.isOver('bodies')]).toEqual([true, false]);
});

test('messages that take long come over many turns, each once and in the order of their link', async () => {
  const nowMs = { value: 0 };
  let turns = 0;
  const seen: { seq: number; turn: number }[] = [];
  const count = 40;
  const router = await fakeRouter({
    clock: { nowMs: () => nowMs.value, wallMs: () => 0 },
    onMessage: (_link, message) => {
      if (message.kind !== 'prefix') return;
      seen.push({ seq: message.seq, turn: turns });
      nowMs.value += 4;
    },
  });
  const agent = fakeAgent([`ws://127.0.0.1:${router.port}`]);
  while (agent.messages.length === 0) await turn();
  const [link] = agent.up;
  const replica = '127.0.0.1:8000' as never;
  for (let seq = 0; seq < count; seq += 1) {
    const of = { replica, rank: 0, incarnation: 'i' as never, seq, runs: [], leaves: [] };
    agent.client.send(link as never, { kind: 'prefix', ...of, evicted: new Uint32Array(0) });
  }
  while (seen.length < count) {
    await turn();
    turns += 1;
  }
  expect(seen.map(({ seq }) => seq)).toEqual(Array.from({ length: count }, (_, k) => k));
  const perTurn = new Map<number, number>();
  for (const one of seen) perTurn.set(one.turn, (perTurn.get(one.turn) ?? 0) + 1);
  // Three messages are 12 ms; what is read in a turn comes before what waits in it.
  expect(Math.max(...perTurn.values())).toBeLessThanOrEqual(6);
  await agent.client.close();
  await router.server.close();
});

test('what a peer says before it closes is heard, though it has to wait, and its end comes behind it', async () => {
  const nowMs = { value: 0 };
  const seen: string[] = [];
  const router = await fakeRouter({
    clock: { nowMs: () => nowMs.value, wallMs: () => 0 },
    onMessage: (_link, { kind }) => {
      seen.push(kind);
      nowMs.value += 20;
    },
    onDown: (_link, reason) => void seen.push(reason),
  });
  const agent = fakeAgent([`ws://127.0.0.1:${router.port}`]);
  while (agent.messages.length === 0) await turn();
  const [link] = agent.up;
  const replica = '127.0.0.1:8000' as never;
  for (let k = 0; k < 30; k += 1) {
    agent.client.send(link as never, { kind: 'bye', replica, reason: 'shutdown' });
  }
  await agent.client.close();
  while (seen.at(-1) !== 'shutting_down') await turn();
  expect(seen).toEqual([...Array.from({ length: 30 }, () => 'bye'), 'shutting_down']);
  await router.server.close();
});

test('work in steps takes a millisecond of its turn, and lets others of its lane go before it goes on', async () => {
  let nowMs = 0;
  const slices = new LinkSlices(() => nowMs);
  const done: string[] = [];
  function* steps(name: string, count: number): Generator<void, string> {
    for (let step = 0; step < count; step += 1) {
      done.push(name);
      nowMs += 0.5;
      yield;
    }
    return name;
  }
  const first = slices.inSteps('bodies', steps('a', 5));
  const second = slices.inSteps('bodies', steps('b', 3));
  expect(done).toEqual(['a', 'a']);
  await turn();
  expect(done).toEqual(['a', 'a', 'a', 'a', 'b', 'b']);
  expect(await Promise.all([first, second])).toEqual(['a', 'b']);
  expect(done.slice(6)).toEqual(['a', 'b']);
});

test('a step that fails is the end of its work, and of no other', async () => {
  const slices = new LinkSlices(() => 0);
  function* failing(): Generator<void, string> {
    yield;
    throw new Error('no');
  }
  await expect(slices.inSteps('bodies', failing())).rejects.toThrow('no');
  expect(await slices.inSteps('bodies', [].values() as Iterator<void, string>)).toBeUndefined();
});
