// One router of a modelled region on its links to global routers: reports once a second and where its queue has doubled or
// halved, grants at every look by the region's own credit code, conversations away from home by its own memory.

import type { LinkId, PoolId, RegionId, RouterId } from '../../shared/model/ids.ts';
import type { CostCurve } from '../../shared/model/cost-curve.ts';
import type { UplinkSettings } from '../../shared/model/global-settings.ts';
import type {
  RegionParentMessage,
  RegionPoolReport,
} from '../../shared/protocol/region-messages.ts';
import { AwayMemory } from '../../router/policy/away-memory.ts';
import { regionQueueMs } from '../../router/policy/region-estimate.ts';
import { Inflow } from '../../router/policy/inflow.ts';
import { CreditGiver, headroomMs } from '../../router/policy/spill-credit.ts';
import type { Timeline } from '../world/timeline.ts';
import type { RegionModel } from './region-model.ts';
import type { RegionWire } from './wire.ts';

const LOOK_MS = 250;
const REPORT_MS = 1_000;
const KV_LIFETIME_MS = 600_000;
const QUEUE_FLOOR_MS = 50;

export interface RouterParts {
  readonly region: RegionId;
  readonly index: number;
  readonly model: RegionModel;
  readonly models: readonly string[];
  readonly settings: UplinkSettings;
}

interface Link {
  readonly wire: RegionWire;
  seq: number;
  readonly arrived: number[];
  cursor: number | null;
  zone: string | null;
  router: RouterId | null;
}

export class RegionRouter {
  readonly id: RouterId;
  readonly #timeline: Timeline;
  readonly #parts: RouterParts;
  readonly #links = new Map<LinkId, Link>();
  readonly #giver = new CreditGiver<LinkId>();
  readonly #away = new AwayMemory();
  readonly #inflow = new Inflow();
  readonly #lastGrants: number[] = [];
  #told: number | null = null;
  #reportedMs = Number.NEGATIVE_INFINITY;
  /** All that was ever granted, and the most of it within one second, ms. */
  grantedMs = 0;
  grantedMostMs = 0;

  constructor(timeline: Timeline, parts: RouterParts, phaseMs: number) {
    this.#timeline = timeline;
    parts.model.watch(parts.index, (workMs) => this.#inflow.note(0, workMs, timeline.nowMs));
    this.#parts = parts;
    this.id = `${parts.region}/${parts.index}` as RouterId;
    timeline.after(phaseMs, () => this.#look());
  }

  joined(wire: RegionWire): void {
    const link = { wire, seq: 0, arrived: [], cursor: null, zone: null, router: null };
    this.#links.set(wire.id, link);
    const { region } = this.#parts;
    wire.up({
      ...{ kind: 'hello', protocol: [1, 1], features: [], routerId: this.id, software: 'sim' },
      ...{ region, wallMs: 0 },
    });
  }

  left(id: LinkId): void {
    this.#links.delete(id);
    this.#giver.closed(id);
  }

  heard(id: LinkId, message: RegionParentMessage): void {
    const link = this.#links.get(id);
    if (link === undefined) return;
    if (message.kind === 'welcome') {
      link.zone = message.zone;
      link.router = message.routerId;
      this.#reportedMs = Number.NEGATIVE_INFINITY;
    } else {
      const { wantsMs, requestMs, spentMs } = message;
      this.#giver.demand(id, { wantsMs, requestMs, spentMs }, this.#timeline.nowMs);
    }
  }

  arrived(from: RouterId, seq: number): void {
    for (const link of this.#links.values()) if (link.router === from) link.arrived.push(seq);
  }

  servedAway(key: string, tokens: number, sinceMs: number): void {
    const note = { key, tokens, sinceMs, zones: null };
    this.#away.note(note, this.#timeline.nowMs, this.#parts.settings.awayMax);
  }

  #look(): void {
    this.#timeline.after(LOOK_MS, () => this.#look());
    if (!this.#parts.model.alive || this.#parts.model.still) return;
    const { nowMs } = this.#timeline;
    const report = this.#report();
    const queue = Math.max(QUEUE_FLOOR_MS, this.#queueMs(report) ?? 0);
    const isDue = nowMs - this.#reportedMs >= REPORT_MS;
    const told = this.#told ?? queue;
    this.#grant(report);
    if (!isDue && queue < 2 * told && told < 2 * queue) return;
    this.#told = queue;
    this.#reportedMs = nowMs;
    for (const link of this.#links.values()) this.#tell(link, report);
  }

  #tell(link: Link, report: RegionPoolReport): void {
    const { shape } = this.#parts.model;
    const arrived = link.arrived.splice(0);
    const { seq } = link;
    link.seq += 1;
    link.wire.up({
      ...{ kind: 'report', seq, pools: [report], routers: shape.routers, draining: false, arrived },
    });
    const told = this.#away.tell(link.zone, link.cursor, this.#timeline.nowMs);
    link.cursor = told.cursor;
    const { snapshot, here, gone } = told;
    if (snapshot || here.length > 0 || gone.length > 0) {
      link.wire.up({ kind: 'away', snapshot, here, gone });
    }
  }

  #grant(report: RegionPoolReport): void {
    const { model, settings } = this.#parts;
    const { replicas, routers } = model.shape;
    // Other routers' queues count: their agents tell.
    const all = Array.from({ length: routers }, (_, k) => model.queuedMs(k));
    const queue = regionQueueMs({ ...report, queuedPrefillMs: all, unacknowledgedMs: 0 });
    const inflowPerMs = this.#inflow.before(
      Number.POSITIVE_INFINITY,
      this.#timeline.nowMs,
    ).workPerMs;
    const load = { readyReplicas: replicas, queueMs: queue, inflowPerMs: inflowPerMs * routers };
    const room = headroomMs(load, settings.spillStartMs);
    const given = this.#giver.grant({ headroomMs: room, routers }, settings, this.#timeline.nowMs);
    let sum = 0;
    for (const [id, { prefillMs, lifeMs }] of given) {
      sum += prefillMs;
      this.#links.get(id)?.wire.up({ kind: 'grant', pool: report.pool, prefillMs, lifeMs });
    }
    this.grantedMs += sum;
    this.#lastGrants.push(sum);
    if (this.#lastGrants.length > REPORT_MS / LOOK_MS) this.#lastGrants.shift();
    const inInterval = this.#lastGrants.reduce((total, each) => total + each, 0);
    this.grantedMostMs = Math.max(this.grantedMostMs, inInterval);
  }

  #queueMs(report: RegionPoolReport): number | null {
    return regionQueueMs({ ...report, queuedPrefillMs: [report.queuedPrefillMs] });
  }

  #report(): RegionPoolReport {
    const { model, models, index, region } = this.#parts;
    const { replicas, tokensPerMs } = model.shape;
    return {
      pool: `${region}-pool` as PoolId,
      observedAgoMs: 50,
      readyReplicas: replicas,
      waitingPrefillMs: model.waitingMs(),
      waitingPrefillTokens: model.waitingMs() * tokensPerMs,
      prefillCost: curve(tokensPerMs),
      prefillTps: replicas * tokensPerMs * 1_000,
      ...{ slotWaitMs: null, kvUsageRatio: null, preemptionsPerS: null, kvRoomTokens: null },
      kvLifetimeMs: KV_LIFETIME_MS,
      pending: [],
      models: models.map((name) => ({ name, revision: 'unknown', maxModelLen: null })),
      tiers: [],
      queuedPrefillMs: model.queuedMs(index),
      queuedRequests: model.queuedRequests(index),
      oldestQueuedMs: null,
      kvRoomWaitMs: null,
      unacknowledgedMs: 0,
    };
  }
}

function curve(tokensPerMs: number): CostCurve {
  return {
    ...{ baseMs: 0, frontMsPerToken: 0, linearMsPerToken: 1 / tokensPerMs },
    ...{ contextMsPerToken2: 0, stepTokens: 1_000_000 },
  };
}
