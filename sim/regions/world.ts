// Several regions and the global routers before them, in virtual time: modelled regions, real global cores, links with
// delay, loads that change. What is seen of it is sampled once a second.

import {
  GLOBAL_DEFAULTS,
  UPLINK_DEFAULTS,
  type GlobalSettings,
} from '../../shared/model/global-settings.ts';
import type { LinkId, RegionId, RouterId } from '../../shared/model/ids.ts';
import { seededRandom, type Random } from '../../shared/lib/random.ts';
import { HmacConversationKeys } from '../../shared/lib/conversation-key.ts';
import { PlacementHints } from '../../shared/lib/placement-hint.ts';
import type { TenantFacts } from '../../router/global/events.ts';
import type { RolloutMode } from '../../router/policy/region-filter.ts';
import { Timeline } from '../world/timeline.ts';
import { GlobalHost } from './global-host.ts';
import { ModelledRegion } from './modelled-region.ts';
import { RegionModel, type RegionShape } from './region-model.ts';
import { RegionRouter } from './region-router.ts';
import { RegionWire } from './wire.ts';

export const MODEL = 'm';

export interface WorldRegion extends RegionShape {
  readonly id: string;
  readonly zone: string;
  /** From the global routers, ms. */
  readonly rttMs: number;
  readonly rollout?: RolloutMode;
}

export interface WorldOptions {
  readonly seed: number;
  readonly regions: readonly WorldRegion[];
  readonly globals: number;
  readonly settings?: Partial<GlobalSettings>;
  readonly tenants?: ReadonlyMap<string, TenantFacts>;
  /** Reports come so much later than the way takes: of each link between these, ms. */
  readonly lateMs: readonly [least: number, most: number];
  /** Each report by so much more, at most, and by a time of its own, ms; absent: none. */
  readonly spreadMs?: number;
}

/** One second, as it truly was and as the controllers had it. */
export interface Sample {
  readonly atMs: number;
  /** ms, by region. */
  readonly queueMs: Readonly<Record<string, number>>;
  /** Share of home's new conversations that goes abroad, of each global router; by region. */
  readonly shares: Readonly<Record<string, readonly number[]>>;
  readonly spills: number;
}

export class RegionsWorld {
  readonly timeline = new Timeline(4_000_000);
  readonly random: Random;
  readonly globals: GlobalHost[] = [];
  readonly regions: ModelledRegion[];
  readonly samples: Sample[] = [];
  readonly settings: GlobalSettings;
  /** Spills by receiver, in order of time. */
  readonly spills: {
    readonly atMs: number;
    readonly region: RegionId;
    readonly prefillMs: number;
  }[] = [];
  readonly #options: WorldOptions;
  readonly #wires: RegionWire[] = [];
  #links = 0;
  /** Everything that a global router decided to send; tests look into it. */
  onAttempt: (global: number, region: RegionId, tenant: string) => void = () => {};

  constructor(options: WorldOptions) {
    this.#options = options;
    this.random = seededRandom(options.seed);
    this.settings = { ...GLOBAL_DEFAULTS, ...options.settings };
    this.regions = options.regions.map((region) => this.#region(region));
    for (let k = 0; k < options.globals; k += 1) this.#global(k);
    this.timeline.after(1_000, () => this.#sample());
  }

  run(untilMs: number): void {
    while (this.timeline.step(untilMs));
    this.timeline.nowMs = Math.max(this.timeline.nowMs, untilMs);
  }

  region(id: string): ModelledRegion {
    const found = this.regions.find((each) => each.id === id);
    if (found === undefined) throw new Error(`no region ${id}`);
    return found;
  }

  /** A new process in the place of the `k`th, with nothing in its memory. */
  restart(k: number): void {
    for (const wire of this.#wires.filter(({ id }) => id.startsWith(`g${k}:`))) wire.cut();
    this.#global(k);
  }

  /** The links between the `k`th global router and a region are cut; its requests still get through. */
  cut(k: number, region: string): void {
    for (const wire of this.#wires) if (wire.id.startsWith(`g${k}:${region}:`)) wire.cut();
  }

  rejoin(k: number, region: string): void {
    const host = this.globals[k];
    if (host === undefined) return;
    const reached = this.region(region);
    for (const router of reached.routers) this.#link(k, host, { region: reached, router });
  }

  config() {
    const { regions, tenants } = this.#options;
    return {
      settings: this.settings,
      zone: null,
      regions: regions.map(({ id, zone, rollout }) => ({
        ...{ id: id as RegionId, zone, certifications: [], tiers: [], costMs: 0 },
        ...{ baseUrl: `http://${id}`, rollout: rollout ?? ('active' as const) },
      })),
      tenants: tenants ?? new Map<string, TenantFacts>(),
    };
  }

  #region({ id, rttMs, ...shape }: WorldRegion): ModelledRegion {
    const model = new RegionModel(this.timeline, shape);
    const routers = Array.from({ length: shape.routers }, (_, index) => {
      const parts = { region: id as RegionId, index, model, models: [MODEL] };
      const settings = { ...UPLINK_DEFAULTS, spillStartMs: this.settings.spillStartMs };
      const phaseMs = this.random.next() * 1_000;
      return new RegionRouter(this.timeline, { ...parts, settings }, phaseMs);
    });
    return new ModelledRegion(this.timeline, { id: id as RegionId, rttMs, model, routers });
  }

  #global(k: number): void {
    const { random } = this;
    const host = new GlobalHost(this.timeline, {
      deps: {
        routerId: `g${k}/${Math.floor(random.next() * 1e9)}` as RouterId,
        software: 'sim',
        config: this.config(),
        random: seededRandom(Math.floor(random.next() * 2 ** 32)),
        wallMs: () => 0,
        keys: new HmacConversationKeys('sim'),
        hints: new PlacementHints('sim'),
      },
      regions: this.regions,
      clockMs: Math.floor(random.next() * 1_200_000),
      onAttempt: (attempt, { decision }) => {
        this.onAttempt(k, attempt.region, attempt.tenant);
        if (decision.kind !== 'spill') return;
        const { region, prefillMs } = attempt;
        this.spills.push({ atMs: this.timeline.nowMs, region, prefillMs: prefillMs ?? 0 });
      },
    });
    this.globals[k] = host;
    for (const region of this.regions)
      for (const router of region.routers) this.#link(k, host, { region, router });
  }

  #link(
    k: number,
    host: GlobalHost,
    { region, router }: { region: ModelledRegion; router: RegionRouter },
  ): void {
    const [least, most] = this.#options.lateMs;
    const lateMs = least + (most - least) * this.random.next();
    const delayMs = region.rttMs / 2;
    const { spreadMs } = this.#options;
    const spread = spreadMs === undefined ? {} : { spreadMs: () => spreadMs * this.random.next() };
    const id = `g${k}:${region.id}:${(this.#links += 1)}` as LinkId;
    const wire = new RegionWire(id, this.timeline, {
      delays: { upMs: delayMs + lateMs, downMs: delayMs, ...spread },
      ends: {
        toGlobal: (message) => host.heard(id, region.id, message),
        toRegion: (message) => router.heard(id, message),
        globalDown: () => host.left(id),
        regionDown: () => router.left(id),
      },
    });
    this.#wires.push(wire);
    host.joined(wire);
    router.joined(wire);
  }

  #sample(): void {
    this.timeline.after(1_000, () => this.#sample());
    const queueMs: Record<string, number> = {};
    const shares: Record<string, number[]> = {};
    for (const { id, model } of this.regions) queueMs[id] = model.queueMs();
    for (const host of this.globals) {
      for (const { region, pools } of host.core.status(host.nowMs).regions) {
        (shares[region] ??= []).push(pools[0]?.spill.share ?? 0);
      }
    }
    const { nowMs: atMs } = this.timeline;
    this.samples.push({ atMs, queueMs, shares, spills: this.spills.length });
  }
}
