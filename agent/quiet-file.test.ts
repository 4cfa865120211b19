import { execFileSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LogTail } from './evidence-log.ts';
import { readQuietly } from './quiet-file.ts';

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'spillway-file-'));
});

afterEach(async () => {
  await rm(folder, { recursive: true });
});

describe('a file', () => {
  it('is read up to its bound, whole where it is shorter', async () => {
    const file = join(folder, 'pid');
    await writeFile(file, '4242\n');
    expect(await readQuietly(file, 64)).toBe('4242\n');
    expect(await readQuietly(file, 2)).toBe('42');
  });

  it('of the kernel, which says that it has no size, is read too', async () => {
    expect(await readQuietly(`/proc/${process.pid}/stat`, 1_024)).toMatch(
      new RegExp(`^${process.pid} `),
    );
  });

  it('that is none is none: nothing there, a folder, a pipe that nobody writes to', async () => {
    const pipe = join(folder, 'pipe');
    execFileSync('mkfifo', [pipe]);
    expect(await readQuietly(join(folder, 'gone'), 64)).toBeNull();
    expect(await readQuietly(folder, 64)).toBeNull();
    expect((await readQuietly(pipe, 64)) ?? '').toBe('');
    expect(await new LogTail(pipe).read()).toBeNull();
    expect(await new LogTail(folder).read()).toBeNull();
  });
});
