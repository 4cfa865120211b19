// Tells the routers which prefixes a target holds: a snapshot on every new link, then deltas, the same to all,
// once per report interval, in parts where they are long. An index that begins anew (another engine life, dropped) begins with a snapshot.

import type { CoreContext } from './core-context.ts';
import type { AgentLink, LinkTable } from './core-links.ts';
import type { TargetState } from './core-target.ts';
import type { PrefixDelta } from './policy/prefix-index.ts';
import { deltaParts, snapshotParts } from './policy/prefix-parts.ts';
import type { Incarnation } from '../shared/model/ids.ts';

/** A router that asks again and again is not sent the whole index each time, ms. */
const SNAPSHOT_EVERY_MS = 250;

export class PrefixFeed {
  private readonly context: CoreContext;
  private readonly links: LinkTable;
  private readonly flushedMs = new Map<TargetState, number>();

  constructor(context: CoreContext, links: LinkTable) {
    this.context = context;
    this.links = links;
  }

  /** When the next message about the target is due; Infinity when there is nothing to say. */
  dueMs(incarnation: Incarnation | null, target: TargetState): number {
    if (incarnation === null) return Infinity;
    let soonest = Infinity;
    for (const link of this.links.welcomed()) {
      if (!this.needsSnapshot(link, incarnation, target)) continue;
      soonest = Math.min(soonest, link.sentState(target).snapshotMs + SNAPSHOT_EVERY_MS);
    }
    return Math.min(soonest, this.deltaDueMs(target));
  }

  private deltaDueMs(target: TargetState): number {
    if (!target.kv.index.changed || this.links.routers === 0) return Infinity;
    return (this.flushedMs.get(target) ?? -Infinity) + this.links.minReportIntervalMs;
  }

  /** `earlyMs`: a report leaves now, and what is due within so long goes along. */
  flush(
    incarnation: Incarnation | null,
    target: TargetState,
    { nowMs, earlyMs }: { readonly nowMs: number; readonly earlyMs: number },
  ): void {
    if (incarnation === null || this.dueMs(incarnation, target) > nowMs + earlyMs) return;
    const { index } = target.kv;
    const fresh: AgentLink[] = [];
    const following: AgentLink[] = [];
    for (const link of this.links.welcomed()) {
      if (link.fenced.has(target.replica)) continue;
      // Its snapshot will hold what it is not told now.
      if (this.waitsForSnapshot(link, incarnation, { target, nowMs })) continue;
      (this.needsSnapshot(link, incarnation, target) ? fresh : following).push(link);
    }
    // Drained before the snapshot is taken: what a snapshot holds is not told again.
    const delta = index.drain();
    this.flushedMs.set(target, nowMs);
    if (delta !== null) this.tell(following, incarnation, { target, delta });
    if (fresh.length === 0) return;
    const snapshot = index.snapshot();
    for (const link of fresh) {
      const state = link.sentState(target);
      state.prefixLife = lifeOf(incarnation, target);
      state.prefixSeq = null;
      state.snapshotMs = nowMs;
      for (const delta of snapshotParts(snapshot, link.takesParts)) {
        this.send(link, incarnation, { target, delta, ofSnapshot: true });
      }
    }
  }

  private needsSnapshot(link: AgentLink, incarnation: Incarnation, target: TargetState): boolean {
    if (link.fenced.has(target.replica)) return false;
    const state = link.sentState(target);
    return state.prefixSeq === null || state.prefixLife !== lifeOf(incarnation, target);
  }

  private waitsForSnapshot(
    link: AgentLink,
    incarnation: Incarnation,
    { target, nowMs }: { readonly target: TargetState; readonly nowMs: number },
  ): boolean {
    if (!this.needsSnapshot(link, incarnation, target)) return false;
    return link.sentState(target).snapshotMs + SNAPSHOT_EVERY_MS > nowMs;
  }

  /** A router that does not expect parts would take so many messages for a flood. */
  private tell(
    links: readonly AgentLink[],
    incarnation: Incarnation,
    { target, delta: whole }: { readonly target: TargetState; readonly delta: PrefixDelta },
  ): void {
    const parts = links.some(({ takesParts }) => takesParts) ? deltaParts(whole) : [];
    for (const link of links) {
      for (const delta of link.takesParts ? parts : [whole]) {
        this.send(link, incarnation, { target, delta });
      }
    }
  }

  private send(
    link: AgentLink,
    incarnation: Incarnation,
    what: {
      readonly target: TargetState;
      readonly delta: PrefixDelta;
      readonly ofSnapshot?: boolean;
    },
  ): void {
    const { target, delta, ofSnapshot = false } = what;
    const state = link.sentState(target);
    state.prefixSeq = state.prefixSeq === null ? 0 : state.prefixSeq + 1;
    const { replica, rank } = target;
    const seq = state.prefixSeq;
    const message = { kind: 'prefix', replica, rank, incarnation, seq, ...delta } as const;
    const continues = ofSnapshot && seq > 0 ? ({ continues: true } as const) : {};
    this.context.emit({ kind: 'send', link: link.link, message: { ...message, ...continues } });
  }
}

function lifeOf(incarnation: Incarnation, target: TargetState): string {
  return `${incarnation}/${target.kv.index.life}`;
}
