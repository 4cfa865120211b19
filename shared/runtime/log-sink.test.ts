import { describe, expect, it } from 'vitest';
import { LogSink, type SinkFile } from './log-sink.ts';
import { ManualTime } from './manual-time.ts';

type Done = Parameters<SinkFile['write']>[1];

/** A file whose reader the test is. */
class FakeFile implements SinkFile {
  readonly read: Uint8Array[] = [];
  pending: { bytes: Uint8Array; done: Done } | null = null;
  /** What `writeSync` does, call by call; then it takes all. */
  script: (number | string)[] = [];

  write(bytes: Uint8Array, done: Done): void {
    if (this.pending !== null) throw new Error('two writes at once');
    this.pending = { bytes, done };
  }

  writeSync(bytes: Uint8Array): number {
    const step = this.script.shift() ?? bytes.length;
    if (typeof step === 'string') throw Object.assign(new Error(step), { code: step });
    this.read.push(bytes.subarray(0, step));
    return step;
  }

  /** Takes what is being written, or so many bytes of it. */
  take(limit = Number.POSITIVE_INFINITY): void {
    const { bytes, done } = this.#next();
    const taken = Math.min(limit, bytes.length);
    this.read.push(bytes.subarray(0, taken));
    done(null, taken);
  }

  fail(code: string): void {
    this.#next().done(Object.assign(new Error(code), { code }), 0);
  }

  get text(): string {
    return Buffer.concat(this.read).toString();
  }

  #next(): { bytes: Uint8Array; done: Done } {
    const { pending } = this;
    if (pending === null) throw new Error('nothing is being written');
    this.pending = null;
    return pending;
  }
}

function rig() {
  const file = new FakeFile();
  const time = new ManualTime();
  return { file, time, sink: new LogSink(file, time, time) };
}

describe('a log sink', () => {
  it('writes lines in order, together while a write is under way, and what a short write left', () => {
    const { file, sink, time } = rig();
    for (const line of ['a\n', 'b\n', 'ü\n']) sink.write(line);
    file.take();
    time.advance(100);
    file.take(3);
    sink.write('d\n');
    file.take(1);
    file.take();
    time.advance(100);
    expect(file.pending?.bytes).toBeDefined();
    file.take();
    expect(file.text).toBe('a\nb\nü\nd\n');
    expect(file.pending).toBeNull();
  });

  it('writes a lone line at once, and what comes soon after it 100 ms later in one write', () => {
    const { file, sink, time } = rig();
    sink.write('a\n');
    file.take();
    for (const line of ['b\n', 'c\n', 'd\n']) {
      time.advance(30);
      sink.write(line);
    }
    expect(file.pending).toBeNull();
    time.advance(10);
    file.take();
    expect(file.read.map((bytes) => Buffer.from(bytes).toString())).toEqual(['a\n', 'b\nc\nd\n']);
    time.advance(100);
    sink.write('e\n');
    expect(file.pending).not.toBeNull();
  });

  it('waits for no further lines once a full batch has gathered, and writes one batch at a time', () => {
    const { file, sink, time } = rig();
    const line = `${'x'.repeat(1_023)}\n`;
    sink.write('a\n');
    file.take();
    time.advance(1);
    for (let k = 0; k < 63; k += 1) sink.write(line);
    expect(file.pending).toBeNull();
    sink.write(line);
    expect(file.pending?.bytes.length).toBe(64 * 1_024);
    sink.write('b\n');
    time.advance(200);
    file.take();
    expect(file.pending?.bytes.length).toBe(2);
  });

  it('keeps a bounded number of bytes for a slow reader, and says how many lines it dropped', () => {
    const { file, sink, time } = rig();
    const line = `${'x'.repeat(1_023)}\n`;
    for (let k = 0; k < 5_000; k += 1) sink.write(line);
    for (; file.pending !== null; time.advance(100)) file.take();
    expect(file.text.length).toBeLessThan(4.2 * 1024 * 1024);
    // One was under way, 4,096 waited.
    expect(file.text).toContain('"lines":903,');
    sink.write('after\n');
    time.advance(100);
    file.take();
    expect(file.text.endsWith('after\n')).toBe(true);
  });

  it('drops everything in silence once its reader is gone', () => {
    const { file, sink } = rig();
    sink.write('a\n');
    file.fail('EPIPE');
    for (let k = 0; k < 10; k += 1) sink.write('b\n');
    expect(file.pending).toBeNull();
    sink.flushSync();
    expect(file.read).toEqual([]);
  });

  it('tries again where the reader takes nothing for now', () => {
    const { file, sink, time } = rig();
    sink.write('a\n');
    file.fail('EAGAIN');
    time.advance(19);
    expect(file.pending).toBeNull();
    time.advance(1);
    file.take();
    expect(file.text).toBe('a\n');
  });

  it.each([
    ['all of it', [], 'b\nc\n'],
    ['all of it, after a while', ['EAGAIN', 1, 'EAGAIN'], 'b\nc\n'],
    ['nothing more, where nobody reads', ['EPIPE'], ''],
    [
      'what is taken, where the reader stands still',
      Array.from({ length: 99 }, () => 'EAGAIN'),
      '',
    ],
  ] as [string, (number | string)[], string][])(
    'leaves nothing behind at exit: %s',
    (_name, script, expected) => {
      const { file, sink } = rig();
      for (const line of ['a\n', 'b\n', 'c\n']) sink.write(line);
      file.script = script;
      sink.flushSync();
      expect(file.text).toBe(expected);
    },
  );

  it('does not wait at exit for a reader that has not taken the write before', () => {
    const { file, sink, time } = rig();
    for (const line of ['a\n', 'b\n']) sink.write(line);
    time.advance(1_500);
    sink.flushSync();
    expect(file.read).toEqual([]);
  });
});
