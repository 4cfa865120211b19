// All roles of one `up` in this process, each told where the others listen: the global router first, for the region to dial;
// then the region's router, whose tier port it is told; then the agent.

import type { RunningAgent } from '../../agent/start.ts';
import type { GlobalReloadable } from '../../router/global/options.ts';
import type { RunningGlobalRouter } from '../../router/global/start.ts';
import type { RouterOptions } from '../../router/regional/options.ts';
import type { RunningRouter } from '../../router/regional/start.ts';
import type { FleetConfig, GlobalConfig } from '../../shared/config/schema.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { agentOptions } from '../cli/agent-options.ts';
import { globalOptions, globalReloadable } from '../cli/global-options.ts';
import { started } from '../cli/process.ts';
import { routerOptions, routerReloadable } from '../cli/router-options.ts';
import { UsageError } from '../cli/usage-error.ts';

/** Which of the links between the tiers are of this process, and known only while it runs. */
export interface OwnLinks {
  readonly tier: boolean;
  readonly uplink: boolean;
}

export interface UpRoles {
  /** Null: the region alone. */
  readonly global: RunningGlobalRouter | null;
  readonly router: RunningRouter;
  reload(next: FleetConfig): void;
  /** Clients of the region that come by way of the global router end with those of the global router. */
  drain(): Promise<void>;
  close(): Promise<void>;
}

export async function startRoles(
  config: FleetConfig,
  own: OwnLinks,
  runtime: RoleRuntime,
): Promise<UpRoles> {
  const global = await startGlobal(config, runtime);
  const { startRegionalRouter } = await import('../../router/regional/start.ts');
  const options = withUplink(routerOptions(config), own.uplink ? global : null);
  const router = await started(startRegionalRouter(options, runtime), '--port');
  const placed = (next: FleetConfig): GlobalReloadable => {
    const reloadable = globalReloadable(next, globalPart(next));
    return own.tier ? reachedAt(reloadable, config.region, router.tierPort) : reloadable;
  };
  global?.reload(placed(config));
  const agent = await startAgentOf(config, router, runtime);
  return {
    global,
    router,
    reload: (next) => {
      // First: it refuses what cannot be used, and then nothing has changed.
      global?.reload(placed(next));
      router.reload(routerReloadable(next));
    },
    drain: async () => {
      await global?.drain();
      await router.drain();
    },
    close: async () => {
      await agent.close();
      await router.close();
      await global?.close();
    },
  };
}

async function startGlobal(
  config: FleetConfig,
  runtime: RoleRuntime,
): Promise<RunningGlobalRouter | null> {
  if (config.global === undefined) return null;
  const { startGlobalRouter } = await import('../../router/global/start.ts');
  return started(startGlobalRouter(globalOptions(config, config.global), runtime), '--port');
}

function withUplink(options: RouterOptions, global: RunningGlobalRouter | null): RouterOptions {
  const { uplink = null } = options;
  if (uplink === null || global === null) return options;
  return { ...options, uplink: { ...uplink, urls: [`ws://127.0.0.1:${global.linksPort}`] } };
}

async function startAgentOf(
  config: FleetConfig,
  router: RunningRouter,
  runtime: RoleRuntime,
): Promise<RunningAgent> {
  const { agent } = config;
  if (agent === undefined) throw new Error('up always has an agent');
  const { startAgent } = await import('../../agent/start.ts');
  const routers = [`ws://127.0.0.1:${router.linksPort}`];
  const options = { ...agentOptions(agent, config), linkSecret: null, routerTls: null, routers };
  return started(startAgent(options, runtime), '--set agent.listen=…');
}

function globalPart({ global }: FleetConfig): GlobalConfig {
  if (global !== undefined) return global;
  throw new UsageError('the global router of this process needs its part `global`: restart `up`');
}

/** The region of this process, at its tier port. */
function reachedAt(
  reloadable: GlobalReloadable,
  region: string,
  tierPort: number | null,
): GlobalReloadable {
  const regions = reloadable.regions.map((each) =>
    each.id === region
      ? { ...each, baseUrl: `http://127.0.0.1:${tierPort ?? 0}`, tls: null }
      : each,
  );
  return { ...reloadable, regions };
}
