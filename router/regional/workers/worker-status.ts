// What `/status` and the gauges say of each worker by itself.

import type { GaugeRow, Metrics } from '../../../shared/runtime/metrics.ts';
import type { MetricName } from '../metrics.ts';
import type { RouterReloadable } from '../options.ts';
import type { RouterStatus, WorkerStatus } from '../status.ts';
import type { Member } from './crew.ts';
import { isReady, type WorkerSays } from './readiness.ts';

export interface KnownOfWorkers {
  readonly members: readonly Member[];
  readonly says: readonly WorkerSays[];
  /** The last status of each. */
  readonly last: ReadonlyMap<number, RouterStatus>;
  /** Those that did not answer in time. */
  readonly silent: ReadonlySet<number>;
  /** What each may use. */
  readonly share: RouterReloadable;
}

export function workerStatuses(known: KnownOfWorkers): WorkerStatus[] {
  const { members, says, last, silent, share } = known;
  const { bodyBytesMax, openRequests } = share.limits;
  const { queueMaxRequests, queueMaxBytes, prefixIndexBytes } = share.settings;
  const limits = { bodyBytesMax, openRequests, queueMaxRequests, queueMaxBytes, prefixIndexBytes };
  return members.map((member) => {
    const said = says.find(({ number }) => number === member.number);
    const status = last.get(member.number);
    return {
      ...member,
      ready: said !== undefined && isReady(said),
      links: status?.links ?? null,
      openRequests: status?.openRequests ?? null,
      silent: silent.has(member.number),
      limits,
    };
  });
}

export function setWorkerGauges(
  metrics: Metrics<MetricName>,
  workers: readonly WorkerStatus[],
): void {
  const rows = (read: (worker: WorkerStatus) => number | null): GaugeRow[] =>
    workers.map((worker) => ({ labels: { worker: String(worker.number) }, value: read(worker) }));
  metrics.replace(
    'worker_up',
    rows(({ state }) => Number(state !== 'down')),
  );
  metrics.replace(
    'worker_silent',
    rows(({ silent }) => Number(silent)),
  );
  metrics.replace(
    'worker_links',
    rows(({ links }) => links),
  );
  metrics.replace(
    'worker_open_requests',
    rows(({ openRequests }) => openRequests),
  );
  metrics.replace(
    'worker_connections',
    rows(({ connections }) => connections),
  );
}
