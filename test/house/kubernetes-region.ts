// What deploy/k8s/region says, and with global routers deploy/k8s/tier and deploy/k8s/global, for the tests that hold them to
// something.

import { join } from 'node:path';
import { parseListen } from '../../shared/config/address.ts';
import { loadFleet } from '../../shared/config/load.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import {
  containersOf,
  deployments,
  expanded,
  manifests,
  text,
  type Container,
  type Deployment,
  type Manifest,
} from './kubernetes.ts';

const SECRET = 'x'.repeat(64);

export const region = manifests('region');
export const fleet = read('region');
export const tier = manifests('tier');
export const tierFleet = read('tier');
export const globals = manifests('global');
export const globalFleet = read('global');

function read(folder: string): FleetConfig {
  // Of each its own: one that stands for two is refused.
  const environment = Object.fromEntries(
    variablesOf(folder).map((name) => [name, `${name}-${SECRET}`]),
  );
  const loaded = loadFleet(fileOf(folder), environment, []);
  if (!loaded.ok) throw new Error(loaded.error);
  return loaded.config;
}

export function fileOf(folder: string): string {
  return join(import.meta.dirname, '../../deploy/k8s', folder, 'fleet.yaml');
}

/** Of the environment, as a file names them. */
export function variablesOf(folder: string): string[] {
  const found = text(`${folder}/fleet.yaml`).matchAll(/\$\{(\w+)\}/g);
  return [...new Set(Array.from(found, ([, name = '']) => name))].toSorted();
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
