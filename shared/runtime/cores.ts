// How many cores this process may keep busy: those that it may run on, and no more than a cgroup's quota pays for, its own
// or of one above it. A container's limit is a quota: it shows in no list of processors.
//
//   cgroup 2   cpu.max             "150000 100000", or "max 100000" where there is none
//   cgroup 1   cpu.cfs_quota_us    -1 where there is none, with cpu.cfs_period_us

import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { posix } from 'node:path';

/** The text of a file; null where it cannot be read. */
export type ReadText = (path: string) => string | null;

const ROOT = '/sys/fs/cgroup';

/** At least 1; a part of a core counts for none. */
export function coresToUse(read: ReadText = readText, cores = availableParallelism()): number {
  const quotas = groupsOf(read('/proc/self/cgroup') ?? '').flatMap(({ root, path, version }) =>
    upwards(path).flatMap((each) => {
      const folder = posix.join(root, each);
      return (version === 2 ? quotaOfV2(folder, read) : quotaOfV1(folder, read)) ?? [];
    }),
  );
  return Math.max(1, Math.floor(Math.min(cores, ...quotas)));
}

interface Group {
  readonly root: string;
  readonly path: string;
  readonly version: 1 | 2;
}

/** `0::/path` is cgroup 2; of cgroup 1 the line that names `cpu`. */
function groupsOf(text: string): Group[] {
  return text.split('\n').flatMap((line): Group[] => {
    const [, id, controllers = '', path = '/'] = /^(\d+):([^:]*):(.*)$/.exec(line) ?? [];
    if (id === '0' && controllers === '') return [{ root: ROOT, path, version: 2 }];
    if (!controllers.split(',').includes('cpu')) return [];
    return [...new Set([controllers, 'cpu'])].map((name) => ({
      root: posix.join(ROOT, name),
      path,
      version: 1,
    }));
  });
}

/** `/a/b`, `/a`, `/`: inside a container the path may be the host's, and only the last is there. */
function upwards(path: string): string[] {
  return path === '/' || path === '.' || path === ''
    ? ['/']
    : [path, ...upwards(posix.dirname(path))];
}

function quotaOfV2(folder: string, read: ReadText): number | null {
  const [quota, period] = (read(posix.join(folder, 'cpu.max')) ?? '').trim().split(' ');
  return ratio(Number(quota), Number(period));
}

function quotaOfV1(folder: string, read: ReadText): number | null {
  const quota = read(posix.join(folder, 'cpu.cfs_quota_us'));
  const period = read(posix.join(folder, 'cpu.cfs_period_us'));
  return quota === null || period === null ? null : ratio(Number(quota), Number(period));
}

function ratio(quota: number, period: number): number | null {
  return quota > 0 && period > 0 ? quota / period : null;
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    // There is none of this kind here.
    return null;
  }
}
