import { afterEach, expect, test } from 'vitest';
import { Packr } from 'msgpackr';
import { Publisher } from 'zeromq';
import { replayRequest } from './engines/kv-events.ts';
import type { AgentEvent } from './events.ts';
import { KvEars } from './kv-ears.ts';
import type { ReplicaId } from '../shared/model/ids.ts';
import { createLog } from '../shared/runtime/log.ts';
import { systemTimers } from '../shared/runtime/timers.ts';
import { until } from '../test/e2e/until.ts';

const REPLICA = '127.0.0.1:8000' as ReplicaId;
const EMPTY_BATCH = new Packr({ useRecords: false }).pack([1, [], 0]);

const closing: (() => void)[] = [];

afterEach(() => {
  for (const close of closing.splice(0)) close();
});

/** Publishes every number once for each call. */
async function publisher(): Promise<{ endpoint: string; publish: (seq: number) => Promise<void> }> {
  const socket = new Publisher({ linger: 0 });
  await socket.bind('tcp://127.0.0.1:*');
  closing.push(() => socket.close());
  const publish = async (seq: number): Promise<void> => {
    await socket.send(['', replayRequest(seq)[1] ?? '', EMPTY_BATCH]);
  };
  return { endpoint: socket.lastEndpoint ?? '', publish };
}

test('an engine that tells another place is heard there, and no longer where it was', async () => {
  const [old, anew] = [await publisher(), await publisher()];
  const seqs: number[] = [];
  const ears = new KvEars({
    timers: systemTimers,
    log: createLog({ level: 'silent', readable: false }),
    post: (event: AgentEvent) => {
      if (event.kind === 'kvEvents') seqs.push(...event.batches.map(({ seq }) => seq));
    },
    count: () => {},
  });
  closing.push(() => ears.close());
  const engine = { replica: REPLICA, url: 'http://127.0.0.1:8000', ranks: 1 };
  const at = (endpoint: string) => ({ endpoint, replay: null, topic: '', bind: false });
  ears.listen(engine, at(old.endpoint));
  await until(async () => {
    await old.publish(1);
    return seqs.includes(1);
  });
  ears.listen(engine, at(anew.endpoint));
  await until(async () => {
    await old.publish(2);
    await anew.publish(3);
    return seqs.includes(3);
  });
  expect(seqs).not.toContain(2);
});
