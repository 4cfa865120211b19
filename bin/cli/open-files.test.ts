import { expect, test } from 'vitest';
import { createLog } from '../../shared/runtime/log.ts';
import { warnOfFewFiles } from './open-files.ts';

function told(openRequests: number, limits: string): unknown[] {
  const lines: unknown[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLog({ level: 'warn', readable: false, destination });
  warnOfFewFiles(log, openRequests, () => limits);
  return lines;
}

const limits = (
  files: string,
) => `Limit                     Soft Limit           Hard Limit           Units
Max processes             63432                63432                processes
Max open files            ${files}                 4096                 files
`;

test('a system that allows fewer files than there may be connections is told of', () => {
  expect(told(10_000, limits('4096'))).toMatchObject([
    { msg: 'few_open_files', most: 4_096, wanted: 20_000 },
  ]);
});

test('one that allows enough, or does not say, is not', () => {
  expect(told(10_000, limits('20000'))).toEqual([]);
  expect(told(10_000, limits('unlimited'))).toEqual([]);
  expect(told(10_000, '')).toEqual([]);
});
