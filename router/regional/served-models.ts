// Which models clients may name: the names that pools are configured with, else those that their replicas report, adapters
// among them. A name stands for a model of the engines (`root`), which its pool's aliases may call otherwise.

import type { ServedModel } from '../gateway/client-routes.ts';
import type { ModelInfo } from '../../shared/model/report.ts';
import type { PoolStatus } from './core.ts';
import type { PoolOptions } from './options.ts';

/** Those of pools of which some replica has reported. A name in several pools stands here once, with the first's facts. */
export function servedModels(
  pools: readonly PoolStatus[],
  options: readonly Pick<PoolOptions, 'id' | 'aliases'>[],
): ServedModel[] {
  const served = new Map<string, ServedModel>();
  for (const pool of pools) {
    const reports = pool.replicas.flatMap(({ targets }) => targets.flatMap((t) => t.report ?? []));
    if (reports.length === 0) continue;
    const models = reports.flatMap((report) => report.models);
    const aliases = options.find(({ id }) => id === pool.id)?.aliases ?? {};
    for (const id of pool.models) {
      const root = Object.hasOwn(aliases, id) ? (aliases[id] ?? id) : id;
      if (!served.has(id)) served.set(id, { id, root, ...factsOf(root, models) });
    }
  }
  return [...served.values()];
}

function factsOf(
  root: string,
  models: readonly ModelInfo[],
): Pick<ServedModel, 'parent' | 'maxModelLen'> {
  const having = models.filter(({ id, loras }) => id === root || loras.includes(root));
  const lengths = having.flatMap(({ maxModelLen }) => maxModelLen ?? []);
  return {
    parent: having.find(({ id }) => id !== root)?.id ?? null,
    maxModelLen: lengths.length === 0 ? null : Math.min(...lengths),
  };
}
