// What `/status` says of the configuration, for people: only what somebody has to do something about.

import type { ConfigView } from '../../shared/config/state.ts';

export function configLines(config: ConfigView | null): string[] {
  if (config === null) return [];
  const { generation, lastReloadOk, lastError, restartFields } = config;
  const problems = (lastError ?? '').split('\n').map((line) => `  ${line}`);
  const refused = [`configuration refused, generation ${generation} stays:`, ...problems];
  const waits = [`these fields wait for a restart: ${restartFields.join(', ')}`];
  return [...(lastReloadOk ? [] : refused), ...(restartFields.length === 0 ? [] : waits)];
}
