// An agent beside one engine, as tests start it in their own process.

import type { AgentEngineOptions, AgentOptions } from '../../agent/options.ts';
import { AGENT_DEFAULTS, type AgentSettings } from '../../shared/model/settings.ts';

export interface AgentChanges extends Partial<Omit<AgentOptions, 'settings'>> {
  readonly settings?: Partial<AgentSettings>;
}

/** It calibrates nothing. `engine` is its URL, or all that is said of it; `router` may be none. */
export function agentOptions(
  engine: string | AgentEngineOptions,
  router: string | null,
  { settings = {}, ...changes }: AgentChanges = {},
): AgentOptions {
  return {
    pool: 'default',
    engines: [
      typeof engine === 'string' ? { url: engine, advertiseUrl: engine, pidFile: null } : engine,
    ],
    routers: router === null ? [] : [router],
    linkSecret: null,
    engineApiKey: null,
    listen: { host: '127.0.0.1', port: 0 },
    settings: { ...AGENT_DEFAULTS, calibration: false, ...settings },
    ...changes,
  };
}
