// `npm run bench:scale`: what the links of one router of many cost, and what they carry.
//
// A region of real cores in virtual time is recorded at one router and replayed there alone. The
// share of a core is CPU time of the replay ÷ virtual time. Sockets, TLS and the operating system are
// not in it. The storms are all agents of a region linking again at once.

import { cpus } from 'node:os';
import { VERSION } from '../../shared/runtime/version.ts';
import { measureVolume } from '../../sim/proofs/scale-volume.ts';
import { AgentMeter } from './agent-meter.ts';
import { record, replay, type Recorded } from './replay.ts';
import { storm, STORMS, type StormShape } from './storm.ts';

interface Row {
  readonly cell: string;
  readonly arm: string;
  readonly [figure: string]: string | number;
}

const args = process.argv.slice(2);
const quick = args.includes('--quick');
const say = args.includes('--json') ? console.error : console.log;
const cells = quick ? [[200, 1]] : [[1_000, 8]];
const rows = [
  ...STORMS.slice(0, quick ? 1 : 2).map((shape) => stormRow(shape)),
  ...cells.map(([replicas = 0, routers = 0]) => measure(replicas, routers)),
];
if (args.includes('--json')) {
  const machine = `${cpus().length} × ${cpus()[0]?.model.trim() ?? 'unknown'}, Node ${process.version}`;
  console.log(JSON.stringify({ version: VERSION, machine, rows }));
} else {
  for (const row of rows) console.table([row]);
}

function stormRow(shape: StormShape): Row {
  const cell = `storm-${shape.agents}x${shape.chunks}`;
  const figures = Object.entries(storm(shape)).map(([name, value]) => [
    name,
    Math.round(100 * value) / 100,
  ]);
  return { cell, arm: 'spillway', ...Object.fromEntries(figures) };
}

function measure(replicas: number, routers: number): Row {
  let events: Recorded[] = [];
  let agent = new AgentMeter(undefined);
  const volume = measureVolume({
    ...{ replicas, routers, requestsPerS: 1.25, seed: 1 },
    ...{ warmMs: quick ? 5_000 : 15_000, forMs: quick ? 5_000 : 10_000 },
    prepare: (world) => {
      const [router] = world.routers;
      if (router !== undefined) events = record(router);
      agent = new AgentMeter(world.agents[0]);
    },
  });
  const figures = replay(volume.world.routers[0]?.id ?? '', events, volume.fromMs);
  const perS = (value: number): number => Math.round((10 * value) / figures.seconds) / 10;
  const share = (ms: number): number => Math.round((1_000 * ms) / figures.seconds / 1_000) / 10;
  say(`${replicas} replicas, ${routers} routers, one router per second of ${figures.seconds} s:`);
  for (const [kind, ms] of [...figures.ms].toSorted((x, y) => sum(y[1]) - sum(x[1]))) {
    const p50 = ms.toSorted((x, y) => x - y)[ms.length >> 1] ?? 0;
    const times = `${(1_000 * p50).toFixed(1)} µs at p50, ${share(sum(ms))} % by the clock`;
    say(`  ${kind.padEnd(14)} ${perS(ms.length)} /s  ${times}`);
  }
  const { siblings } = volume;
  // Between routers each message is sent by one and heard by another.
  const messages = volume.wire.total.messages + 2 * siblings.messages;
  const bytes = volume.wire.total.bytes + 2 * siblings.bytes;
  return {
    ...{ cell: `${replicas}x${routers}`, arm: 'spillway' },
    requestsPerS: perS(volume.requests / routers),
    cachedShare: Math.round(1_000 * volume.cachedShare) / 1_000,
    messagesPerS: perS(messages / routers),
    bytesPerS: perS(bytes / routers),
    siblingMessagesPerS: perS((2 * siblings.messages) / routers),
    siblingBytesPerS: perS((2 * siblings.bytes) / routers),
    bytesPerSPerAgent: perS(volume.wire.total.bytes / replicas),
    coreShare: share(figures.cpuMs),
    agentEventsPerS: Math.round((10_000 * agent.figures.events) / volume.world.nowMs) / 10,
    agentEventUsP50: Math.round(10_000 * agent.figures.eventMsP50) / 10,
    longestEventMs: Math.round(10 * figures.longestMs) / 10,
  };
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
