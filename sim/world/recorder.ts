// What the clients of a world saw, one row a request, and the figures that policies are judged by.

import type { Usage } from '../../shared/protocol/messages.ts';
import type { RequestEnd } from './attempts.ts';

export interface RequestRow {
  readonly conversation: number;
  /** 0 for a conversation's first. */
  readonly turn: number;
  readonly router: string;
  readonly arrivedMs: number;
  /** Prompt and answer tokens of the turn before, which a cache could still hold; 0 where there is none. */
  readonly reusableTokens: number;
  readonly promptTokens: number;
  /** The replicas it was sent to, in order. */
  readonly replicas: string[];
  queueMs: number | null;
  predictedTtftMs: number | null;
  predictedCachedTokens: number | null;
  predictedPromptTokens: number | null;
  /** Instant of the last attempt. */
  sentMs: number | null;
  firstTokenMs: number | null;
  endedMs: number | null;
  end: RequestEnd | null;
}

export class Recorder {
  readonly rows: RequestRow[] = [];

  add(row: RequestRow): RequestRow {
    this.rows.push(row);
    return row;
  }

  complete(fromMs = 0): (RequestRow & { end: { usage: Usage } })[] {
    return this.rows.filter(
      (row): row is RequestRow & { end: { kind: 'complete'; usage: Usage } } =>
        row.end?.kind === 'complete' && row.arrivedMs >= fromMs,
    );
  }

  ttftMs(fromMs = 0): number[] {
    return this.rows
      .filter((row) => row.firstTokenMs !== null && row.arrivedMs >= fromMs)
      .map((row) => row.firstTokenMs! - row.arrivedMs);
  }

  /** Share of prompt tokens that the engines found cached. */
  cachedShare(fromMs = 0): number {
    const rows = this.complete(fromMs);
    return ratio(
      sum(rows.map((row) => row.end.usage.cachedTokens ?? 0)),
      sum(rows.map((row) => row.end.usage.promptTokens)),
    );
  }

  /** Cached tokens of later turns as a share of what their earlier turns had left behind, in whole blocks. */
  reuseShare(blockTokens: number, fromMs = 0): number {
    const later = this.complete(fromMs).filter((row) => row.reusableTokens >= blockTokens);
    const best = later.map((row) => row.reusableTokens - (row.reusableTokens % blockTokens));
    const found = later.map((row, at) => Math.min(best[at]!, row.end.usage.cachedTokens ?? 0));
    return ratio(sum(found), sum(best));
  }

  /** Share of the busiest replica among all that were sent. */
  busiestShare(fromMs = 0): number {
    const counts = this.sentByReplica(fromMs);
    return ratio(Math.max(0, ...counts.values()), sum([...counts.values()]));
  }

  sentByReplica(fromMs = 0): Map<string, number> {
    const counts = new Map<string, number>();
    for (const row of this.rows) {
      const replica = row.replicas.at(-1);
      if (replica === undefined || row.arrivedMs < fromMs) continue;
      counts.set(replica, (counts.get(replica) ?? 0) + 1);
    }
    return counts;
  }

  /** How the requests ended, by kind and cause; `open` for those that have not. */
  ends(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { end } of this.rows) {
      const name = end === null ? 'open' : endName(end);
      counts[name] = (counts[name] ?? 0) + 1;
    }
    return counts;
  }
}

export function quantile(values: readonly number[], share: number): number {
  if (values.length === 0) return Number.NaN;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function ratio(part: number, whole: number): number {
  return whole === 0 ? 0 : part / whole;
}

function endName(end: RequestEnd): string {
  if (end.kind === 'refused') return `refused:${end.code}`;
  return end.kind === 'interrupted' ? `interrupted:${end.cause}` : end.kind;
}
