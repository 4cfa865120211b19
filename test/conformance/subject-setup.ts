// What the simulated engine and the real one are started with alike: sizes small enough to be filled in seconds, where
// KV events are, and the flags that say both.

import { freePorts } from '../free-ports.ts';
import type { SubjectEvents, SubjectSizes } from './subject.ts';

const TOPIC = 'kv@conformance';
export const ADAPTER = 'support-bot';

export const SIZES: SubjectSizes = {
  maxModelLen: 8_192,
  maxNumSeqs: 8,
  maxBatchedTokens: 1_024,
  blockTokens: 32,
  kvBlocks: 320,
  maxInFlight: 12,
};

/** Where a subject may publish and replay: the second rank takes the next port of each. */
export async function eventPorts(): Promise<{ readonly publish: number; readonly replay: number }> {
  const [publish, , replay] = await freePorts(4);
  return { publish: publish!, replay: replay! };
}

/** Of a subject that publishes and replays on these ports. */
export function eventsAt(publish: number, replay: number): SubjectEvents {
  return {
    publish: `tcp://127.0.0.1:${publish}`,
    replay: `tcp://127.0.0.1:${replay}`,
    topic: TOPIC,
  };
}

/** All but the size of the KV cache, which each engine is told in its own words. */
export function limitFlags(sizes: SubjectSizes): string[] {
  const inFlight =
    sizes.maxInFlight === null ? [] : ['--max-num-queued-reqs', String(sizes.maxInFlight)];
  return [
    ...['--max-model-len', String(sizes.maxModelLen), '--max-num-seqs', String(sizes.maxNumSeqs)],
    ...['--max-num-batched-tokens', String(sizes.maxBatchedTokens)],
    ...inFlight,
  ];
}

// With a host in its endpoint the publisher would connect; with a star it binds.
export function eventFlags(publish: number, replay: number): string[] {
  const config = {
    enable_kv_cache_events: true,
    endpoint: `tcp://*:${publish}`,
    replay_endpoint: `tcp://*:${replay}`,
    topic: TOPIC,
  };
  return ['--kv-events-config', JSON.stringify(config)];
}
