// `/kv_event_sources`: each rank's publisher as it is configured, a port of the system's choice filled in.

import { endpointOfRank } from '../kv-publisher.ts';
import type { EngineHost } from '../surface.ts';

export function kvEventSources(host: EngineHost): object {
  const { kvEvents } = host.options;
  if (kvEvents === undefined) return {};
  const bound = host.kvEndpoints();
  return Object.fromEntries(
    host.engines.map((_, rank) => [
      String(rank),
      {
        enable_kv_cache_events: true,
        publisher: 'zmq',
        endpoint: told(endpointOfRank(kvEvents.endpoint, rank), bound[rank]?.publish),
        replay_endpoint:
          kvEvents.replayEndpoint === null
            ? null
            : told(endpointOfRank(kvEvents.replayEndpoint, rank), bound[rank]?.replay),
        buffer_steps: kvEvents.bufferSteps,
        hwm: kvEvents.hwm,
        max_queue_size: kvEvents.maxQueueSize,
        topic: kvEvents.topic,
      },
    ]),
  );
}

function told(configured: string, bound: string | null | undefined): string {
  return configured.endsWith(':0') ? (bound ?? configured) : configured;
}
