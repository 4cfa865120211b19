// What one of several workers may use: what is a bound of the machine (memory of bodies, open requests, the queue) is
// divided evenly, since connections are; what each process holds whole (the prefix index: every agent tells every worker)
// and what is one request's (its body) is not.

import type { RegionalSettings } from '../../../shared/model/settings.ts';
import type { GatewayLimits } from '../../gateway/gateway-options.ts';
import type { RouterReloadable } from '../options.ts';

/** The share of one of `count` workers. */
export function workerShare(reloadable: RouterReloadable, count: number): RouterReloadable {
  return {
    ...reloadable,
    settings: settingsShare(reloadable.settings, count),
    limits: limitsShare(reloadable.limits, count),
  };
}

function settingsShare(settings: RegionalSettings, count: number): RegionalSettings {
  return {
    ...settings,
    queueMaxRequests: share(settings.queueMaxRequests, count),
    queueMaxBytes: share(settings.queueMaxBytes, count),
  };
}

function limitsShare(limits: GatewayLimits, count: number): GatewayLimits {
  return {
    ...limits,
    bodyBytesMax: Math.max(share(limits.bodyBytesMax, count), limits.bodyBytes),
    openRequests: share(limits.openRequests, count),
  };
}

function share(whole: number, count: number): number {
  return Math.ceil(whole / count);
}
