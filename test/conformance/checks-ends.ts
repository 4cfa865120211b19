// Loading, freezing, dying, being told to stop: what each looks like from outside.
//
// Times are told as order and as generous limits: the real engine shares a small machine.

import assert from 'node:assert/strict';
import type { Check, Theme } from './check.ts';
import { begun, call, openStream, statusOf, type Stream } from './client.ts';
import { grown, read, untilIdle, untilReads, watch } from './counters.ts';
import { complete, completionBody, stream } from './generate.ts';
import { replayFrom } from './kv-feed.ts';
import { freshText, freshTokens, userMessage } from './prompts.ts';
import { recordedText } from './recorded.ts';
import { delay, eventually } from './run.ts';
import { shapeOfText } from './shape.ts';
import type { ConformanceSubject } from './subject.ts';

const NEEDS = ['faults'] as const;
const PATHS = ['/health', '/metrics', '/v1/models'] as const;
/** A stopping engine may leave a stream open for as long as it lives; so long is looked at it. */
const SILENCE_MS = 4_000;

const statuses = ({ url }: ConformanceSubject) =>
  Promise.all(PATHS.map((path) => statusOf(url, path)));

/** A chat stream in the midst of its answer. */
async function runningChat(subject: ConformanceSubject): Promise<Stream> {
  const body = { messages: userMessage(freshText(20)), max_tokens: 4_000, ignore_eos: true };
  const options = { stream_options: { include_usage: true } };
  const open = await openStream(subject.url, '/v1/chat/completions', {
    model: subject.model,
    ...body,
    ...options,
  });
  await eventually('tokens', () => (open.events.length > 3 ? true : null));
  return open;
}

/** The last events of a recorded stream, as data. */
function recordedEnd(name: string, count: number): string[] {
  const { chunks } = JSON.parse(recordedText(name)) as { chunks: [number, string][] };
  return chunks.slice(-count).map(([, line]) => line.replace(/^data: /, '').trimEnd());
}

function shapes(events: readonly string[]): string[] {
  return events.map(shapeOfText);
}

type Ending = 'abort' | 'error' | 'silence';

/** How a stream ended whose engine was told to stop; throws on an end that was never recorded. */
async function endingOf(open: Stream): Promise<Ending> {
  await eventually(
    'an end, or silence',
    () => {
      const quietMs = performance.now() - open.openedMs - (open.events.at(-1)?.atMs ?? 0);
      return open.ended() !== null || quietMs > SILENCE_MS ? true : null;
    },
    { limitMs: 30_000 },
  );
  const last = open.events.slice(-3).map(({ data }) => data);
  if (last.at(-1) !== '[DONE]') {
    assert.equal(open.ended(), null, 'a stream that is silent stays open');
    assert.deepEqual(shapes(last.slice(-1)), shapes(recordedEnd('stream-term-hang.json', 1)));
    return 'silence';
  }
  assert.equal(open.ended(), 'whole', 'what ends in [DONE] is a whole body');
  if (last.at(-2)?.startsWith('{"error"') === true) {
    const recorded = recordedEnd('stream-term-error.json', 2);
    assert.deepEqual(last.slice(-2), recorded);
    return 'error';
  }
  assert.deepEqual(shapes(last), shapes(recordedEnd('stream-term-abort.json', 3)));
  assert.match(last[0] ?? '', /"finish_reason":"abort"/);
  return 'abort';
}

const loading: readonly Check[] = [
  {
    name: 'while it loads its port refuses; then everything answers at once, and all counts begin anew',
    needs: NEEDS,
    begins: 'stopped',
    limitMs: 450_000,
    async run(subject) {
      const { controls, startLimitMs, url } = subject;
      assert.equal(await statusOf(url, '/health'), 'ECONNREFUSED');
      const startedSeconds = Date.now() / 1_000;
      await controls.start();
      assert.equal(await statusOf(url, '/health'), 'ECONNREFUSED');
      const first = await eventually(
        'the port opens',
        async () => {
          assert.ok(controls.running(), 'it lives');
          const status = await statusOf(url, '/health');
          return status === 'ECONNREFUSED' ? null : status;
        },
        { limitMs: startLimitMs, everyMs: 50 },
      );
      assert.equal(first, 200, 'the first answer');
      assert.deepEqual(await statuses(subject), [200, 200, 200]);
      const fresh = await read(subject);
      for (const name of ['prompt_tokens_total', 'generation_tokens_total']) {
        assert.equal(fresh.count(name), 0, name);
      }
      const process = fresh.families.get('process_start_time_seconds')?.series[0]?.value ?? 0;
      assert.ok(process > startedSeconds - 1, `a process of ${process}`);
      await complete(subject, { prompt: freshTokens(100), tokens: 1 });
      if (!subject.capabilities.has('kv-events')) return;
      const { batches } = await replayFrom(subject, 0);
      assert.equal(batches[0]?.seq, 0);
    },
  },
];

const freezing: readonly Check[] = [
  {
    name: 'a frozen core is invisible: health, metrics and models answer 200, gauges and counters stand still',
    needs: NEEDS,
    async run(subject) {
      const { controls } = subject;
      await untilIdle(subject);
      const open = await stream(subject, { prompt: freshTokens(100), tokens: 3_000 });
      await eventually('tokens', () => (open.events.length > 3 ? true : null));
      await untilReads(subject, 'it runs', (each) => each.count('num_requests_running') === 1);
      await controls.freezeCore();
      try {
        // What was on its way when it froze still arrives.
        await delay(300);
        const frozen = await read(subject);
        const seen = open.events.length;
        const other = await stream(subject, { prompt: freshTokens(50), tokens: 2 });
        assert.equal(other.status, 200, 'the head of a new stream');
        const { readings } = await watch(subject, delay(1_500), 100);
        assert.deepEqual(await statuses(subject), [200, 200, 200]);
        for (const name of ['generation_tokens_total', 'prompt_tokens_total']) {
          assert.ok(
            readings.every((each) => grown(frozen, each, name) === 0),
            name,
          );
        }
        for (const each of readings) {
          assert.equal(each.count('num_requests_running'), 1);
          assert.equal(each.count('num_requests_waiting'), 0);
        }
        assert.equal(open.events.length, seen);
        assert.equal(other.events.length, 0);
      } finally {
        await controls.thawCore();
      }
      const seen = open.events.length;
      await eventually('it goes on', () => (open.events.length > seen + 5 ? true : null));
      open.leave();
      await untilIdle(subject);
    },
  },
];

const dying: readonly Check[] = [
  {
    name: 'a dead core ends a stream with an error event and [DONE], health is 503, metrics 200, then the port closes',
    needs: NEEDS,
    limitMs: 60_000,
    async run(subject) {
      const { controls, url } = subject;
      const open = await runningChat(subject);
      const body = completionBody(subject, { prompt: freshTokens(30), tokens: 3_000 });
      const whole = begun(call(url, '/v1/completions', { body }));
      await untilReads(subject, 'both run', (each) => each.count('num_requests_running') === 2);
      // Looked at all along: the port closes soon, or only seconds later.
      const health = begun(statusesUntilRefused(url, '/health'));
      const metrics = begun(statusesUntilRefused(url, '/metrics'));
      await controls.killCore();
      assert.equal(await open.end, 'whole');
      assert.equal(open.status, 200);
      assert.deepEqual(
        open.events.slice(-2).map(({ data }) => data),
        recordedEnd('stream-killcore.json', 2),
      );
      const answer = await whole;
      const { error } = JSON.parse(answer.text) as { error: Record<string, unknown> };
      assert.deepEqual([answer.status, error['code']], [500, 500]);
      assert.equal(error['type'], 'InternalServerError');
      // A first look may still have met it alive.
      assert.deepEqual((await health).slice(-1), [503]);
      assert.deepEqual(await metrics, [200]);
    },
  },
  {
    name: 'told to stop, it closes its port at once, and its streams end in one of the three recorded ways',
    needs: NEEDS,
    limitMs: 90_000,
    async run(subject) {
      const { controls, url } = subject;
      const open = await runningChat(subject);
      controls.terminate();
      await eventually(
        'the port refuses',
        async () => ((await statusOf(url, '/health')) === 'ECONNREFUSED' ? true : null),
        { limitMs: 10_000 },
      );
      const ending = await endingOf(open);
      assert.ok(['abort', 'error', 'silence'].includes(ending));
      open.leave();
    },
  },
  {
    name: 'told to stop while it loads, it ends, and its port never opens',
    needs: NEEDS,
    begins: 'stopped',
    limitMs: 60_000,
    async run(subject) {
      const { controls, url } = subject;
      await controls.start();
      await untilLoading(subject);
      controls.terminate();
      await eventually(
        'it is gone',
        async () => {
          assert.notEqual(await statusOf(url, '/health'), 200);
          return controls.running() ? null : true;
        },
        { limitMs: 45_000, everyMs: 50 },
      );
      assert.equal(await statusOf(url, '/health'), 'ECONNREFUSED');
    },
  },
];

/** Statuses of a path in order, equal neighbours once, until its port refuses. */
async function statusesUntilRefused(url: string, path: string): Promise<number[]> {
  const seen: number[] = [];
  await eventually(
    'the port refuses',
    async () => {
      const status = await statusOf(url, path);
      // A connection that the closing port cuts is no answer.
      if (typeof status === 'number' && status !== seen.at(-1)) seen.push(status);
      return status === 'ECONNREFUSED' ? true : null;
    },
    { limitMs: 40_000, everyMs: 10 },
  );
  return seen;
}

/** Well in its start: the process has had time to come up, its port still refuses. */
async function untilLoading({ controls, loadsForMs }: ConformanceSubject): Promise<void> {
  await delay(loadsForMs * 0.4);
  assert.ok(controls.running());
}

/** Starts an engine, and leaves it serving. */
export const LOADING: Theme = { name: 'loading', checks: loading };
/** Needs a served engine and leaves it so. */
export const FREEZING: Theme = { name: 'freezing', checks: freezing };
/** Ends engines. */
export const ENDS: Theme = { name: 'ends', checks: dying };
