import { expect, test } from 'vitest';
import { coresToUse } from './cores.ts';

const reading = (files: Record<string, string>) => (path: string) => files[path] ?? null;

test('are those that the process may run on, where nothing else limits it', () => {
  expect(coresToUse(reading({}), 8)).toBe(8);
  const unlimited = { '/proc/self/cgroup': '0::/\n', '/sys/fs/cgroup/cpu.max': 'max 100000\n' };
  expect(coresToUse(reading(unlimited), 8)).toBe(8);
});

test('are no more than the quota of cgroup 2 pays for, that of a group above included', () => {
  const files = {
    '/proc/self/cgroup': '0::/kubepods/pod1/c\n',
    '/sys/fs/cgroup/kubepods/pod1/c/cpu.max': 'max 100000\n',
    '/sys/fs/cgroup/kubepods/pod1/cpu.max': '350000 100000\n',
  };
  expect(coresToUse(reading(files), 8)).toBe(3);
  expect(coresToUse(reading(files), 2)).toBe(2);
});

test('are at least one, and those of a container whose path is the host’s', () => {
  const files = {
    '/proc/self/cgroup': '0::/kubepods/pod1/c\n',
    '/sys/fs/cgroup/cpu.max': '50000 100000\n',
  };
  expect(coresToUse(reading(files), 8)).toBe(1);
});

test('are by cgroup 1 too, under either name of its folder', () => {
  for (const folder of ['cpu', 'cpu,cpuacct']) {
    const files = {
      '/proc/self/cgroup': '4:memory:/a\n3:cpu,cpuacct:/a\n0::/\n',
      [`/sys/fs/cgroup/${folder}/a/cpu.cfs_quota_us`]: '200000\n',
      [`/sys/fs/cgroup/${folder}/a/cpu.cfs_period_us`]: '100000\n',
    };
    expect(coresToUse(reading(files), 8)).toBe(2);
  }
  const none = {
    '/proc/self/cgroup': '1:cpu:/\n',
    '/sys/fs/cgroup/cpu/cpu.cfs_quota_us': '-1\n',
    '/sys/fs/cgroup/cpu/cpu.cfs_period_us': '100000\n',
  };
  expect(coresToUse(reading(none), 8)).toBe(8);
});
