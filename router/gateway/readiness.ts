// What `/readyz` says, and why.

export interface Readiness {
  readonly ready: boolean;
  readonly checks: readonly {
    readonly name: string;
    readonly ok: boolean;
    readonly says: string;
  }[];
}

export function readinessText(readiness: Readiness): string {
  const lines = readiness.checks.map(
    ({ name, ok, says }) => `[${ok ? '+' : '-'}] ${name}: ${says}`,
  );
  return [...lines, readiness.ready ? 'ready' : 'not ready', ''].join('\n');
}
