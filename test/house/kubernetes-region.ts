// What deploy/k8s/region says, for the tests that hold it to something.

import { join } from 'node:path';
import { parseListen } from '../../shared/config/address.ts';
import { loadFleet } from '../../shared/config/load.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import {
  containersOf,
  deployments,
  expanded,
  manifests,
  type Container,
  type Deployment,
  type Manifest,
} from './kubernetes.ts';

const SECRET = 'x'.repeat(64);

export const region = manifests('region');
export const fleet = read();

function read(): FleetConfig {
  const environment = { SPILLWAY_LINK_SECRET: SECRET, SPILLWAY_ENGINE_API_KEY: SECRET };
  const loaded = loadFleet(
    join(import.meta.dirname, '../../deploy/k8s/region/fleet.yaml'),
    environment,
    [],
  );
  if (!loaded.ok) throw new Error(loaded.error);
  return loaded.config;
}

export function named(found: readonly Manifest[], container: string): Container {
  const all = deployments(found).flatMap(containersOf);
  const meant = all.find(({ name }) => name === container);
  if (meant === undefined) throw new Error(`no container ${container}`);
  return meant;
}

export function deploymentOf(found: readonly Manifest[], component: string): Deployment {
  const meant = deployments(found).find(
    ({ spec }) => spec.template.metadata.labels['app.kubernetes.io/component'] === component,
  );
  if (meant === undefined) throw new Error(`no deployment of ${component}`);
  return meant;
}

/** Its arguments as its process sees them. */
export function argsOf(container: Container): string[] {
  return expanded(container.args, { POD_IP: '10.244.3.7', ENGINE_API_KEY: 'key' });
}

export function portOf(listen: string | undefined): number | undefined {
  return parseListen(listen ?? '')?.port;
}
