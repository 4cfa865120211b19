// `tests:` of `fleet.yaml`: for a tenant and a model, the regions that may serve it. Answered by the very filter that routes,
// with every region up and serving the models that it is meant to; what is so only for now is not asked.

import { demandedModel, granted, type DemandedModel } from '../../router/policy/model-grant.ts';
import {
  filterRegions,
  type RegionModel,
  type RegionView,
} from '../../router/policy/region-filter.ts';
import type { Problem } from '../../shared/config/diagnostics.ts';
import type { FleetConfig, TenantConfig } from '../../shared/config/schema.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import { tenantOptions } from './tenancy-options.ts';

/** Of each test that finds other regions than it expects. */
export function routingTestProblems(config: FleetConfig): readonly Problem[] {
  return config.tests.flatMap(({ tenant: name, model, regions }, i): Problem[] => {
    const tenant = config.tenants.find((each) => each.name === name);
    if (tenant === undefined) return [];
    const { eligible, why } = routed(config, tenant, model);
    const expected = [...new Set(regions)].toSorted();
    if (eligible.join(' ') === expected.join(' ')) return [];
    const found = eligible.length === 0 ? `a refusal (${why})` : eligible.join(', ');
    const wanted = expected.length === 0 ? 'a refusal' : expected.join(', ');
    const message = `${name} asks for ${model}: expected ${wanted}, found ${found}`;
    return [{ path: ['tests', i, 'regions'], message }];
  });
}

interface Routed {
  /** In alphabetical order. */
  readonly eligible: readonly string[];
  /** Where none is: what removed each region. */
  readonly why: string;
}

function routed(config: FleetConfig, tenant: TenantConfig, written: string): Routed {
  const demanded = demandedModel(written, (name) => namesOf(config).has(name));
  const asked = granted(tenant.models, demanded);
  if (asked === null) return { eligible: [], why: 'the tenant may not use the model' };
  const { residency, certifications, tier } = tenantOptions(tenant);
  const demand = { residency, certifications, tier, ...asked };
  const { eligible, removed } = filterRegions(viewsOf(config, asked), demand);
  const why = [...removed].map(([region, reason]) => `${region}: ${reason}`).join(', ');
  return { eligible: eligible.toSorted(), why };
}

/** By which models go as they stand. */
function namesOf({ models, regions, tenants }: FleetConfig): ReadonlySet<string> {
  const listed = [...regions, ...tenants].flatMap((each) => each.models ?? []);
  const plain = listed.filter((name) => !name.includes('@'));
  return new Set([...Object.keys(models), ...plain]);
}

/** Regions as they are while all are well; where none is named, the one that there is. */
function viewsOf({ regions, region, models }: FleetConfig, asked: DemandedModel): RegionView[] {
  const known = Object.keys(models);
  const served = known.length === 0 || known.includes(asked.model) ? [asked.model] : [];
  const well = {
    seen: true,
    hasCapacity: true,
    paused: false,
    breakerOpen: false,
    excluded: false,
  };
  if (regions.length === 0) {
    const only = {
      region: region as RegionId,
      rollout: 'active',
      certifications: [],
      tiers: [],
    } as const;
    return [{ ...only, models: named(served, asked), ...well }];
  }
  return regions.map((each) => ({
    region: each.name as RegionId,
    rollout: each.rollout,
    certifications: each.certifications,
    tiers: each.tiers,
    models: named(each.models ?? served, asked),
    ...well,
  }));
}

/** What names no revision runs whichever is asked for. */
function named(models: readonly string[], { model, revisions }: DemandedModel): RegionModel[] {
  return models.flatMap((each): RegionModel[] => {
    if (each === model) {
      return (revisions ?? ['unknown']).map((revision) => ({ name: model, revision }));
    }
    if (!each.startsWith(`${model}@`)) return [];
    return [{ name: model, revision: each.slice(model.length + 1) }];
  });
}
