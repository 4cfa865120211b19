// Loaded into each process of a soak before its own code (`--import`): on SIGWINCH, which changes nothing where nobody listens, it collects all garbage and writes what is
// left to `SOAK_HEAP_FOLDER/<pid>.json`, by a rename, so that whoever reads finds all of it or nothing.

import { renameSync, writeFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const folder = process.env['SOAK_HEAP_FOLDER'];
if (folder !== undefined) {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  process.on('SIGWINCH', () => {
    // The second one waits until what buffers held outside the heap has been given back.
    collect();
    collect();
    const { heapUsed, external, rss } = process.memoryUsage();
    const path = `${folder}/${process.pid}.json`;
    writeFileSync(`${path}.new`, JSON.stringify({ live: heapUsed + external, rss }));
    renameSync(`${path}.new`, path);
  });
}
