// Global routers on Kubernetes, and the region behind them: each against the program that it starts, and the two against
// each other. Policies: network-policies.test.ts.

import { describe, expect, it } from 'vitest';
import { loadFleet } from '../../shared/config/load.ts';
import { check, commandNamed } from './command-line.ts';
import {
  argsOf,
  deploymentOf,
  fileOf,
  fleet,
  globalFleet,
  globals,
  named,
  portOf,
  tier,
  tierFleet,
  variablesOf,
} from './kubernetes-region.ts';
import {
  containersOf,
  deployments,
  documents,
  kustomization,
  ofKind,
  picks,
  type Container,
  type Labels,
  type Manifest,
} from './kubernetes.ts';

interface Service {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly clusterIP?: string;
    readonly publishNotReadyAddresses?: boolean;
    readonly selector: Labels;
    readonly ports: readonly { readonly port: number; readonly targetPort: string }[];
  };
}

const router = named(globals, 'global');
const { global } = globalFleet;
const services = (found: readonly Manifest[]) => ofKind(found, 'Service') as unknown as Service[];
const example = (folder: string) => documents(`${folder}/secret.example.yaml`)[0];

function secretsOf({ env }: Container): { variable: string; name: string; key: string }[] {
  return env.flatMap(({ name: variable, valueFrom }) =>
    valueFrom?.secretKeyRef === undefined ? [] : [{ variable, ...valueFrom.secretKeyRef }],
  );
}

describe('a global router', () => {
  it('runs a command that exists, with the file that is mounted and the variables that it names', () => {
    const flags = check(argsOf(router));
    expect(router.args[0]).toBe('global');
    const known = commandNamed('global').options.flatMap((option) => option.envVar ?? []);
    const given = router.env.map(({ name }) => name).filter((name) => !known.includes(name));
    expect(given.toSorted()).toEqual(variablesOf('global'));
    const map = kustomization('global').configMapGenerator?.[0];
    const { volumes } = deploymentOf(globals, 'global').spec.template.spec;
    expect(volumes[0]?.configMap?.name).toBe(map?.name);
    expect(`${router.volumeMounts[0]?.mountPath}/${map?.files[0]}`).toBe(flags['config']);
  });

  it('listens on the ports that it names, and is asked for its health at one of them', () => {
    expect(router.ports).toEqual([
      { name: 'clients', containerPort: portOf(global?.clients.listen) },
      { name: 'links', containerPort: portOf(global?.links.listen) },
      { name: 'admin', containerPort: portOf(global?.admin?.listen) },
    ]);
    const { startupProbe, livenessProbe, readinessProbe } = router;
    const probes = [startupProbe, livenessProbe, readinessProbe].map((probe) => probe?.httpGet);
    expect(probes).toEqual([
      { path: '/livez', port: 'admin' },
      { path: '/livez', port: 'admin' },
      { path: '/readyz', port: 'admin' },
    ]);
  });

  it('has its hook, acceptMs and drainMs before it is killed', () => {
    const { acceptMs, drainMs } = global?.shutdown ?? { acceptMs: 0, drainMs: 0 };
    expect(drainMs).toBeGreaterThanOrEqual(fleet.router.shutdown.drainMs);
    const preStopS = router.lifecycle?.preStop?.sleep?.seconds ?? 0;
    expect(preStopS).toBeGreaterThanOrEqual(5);
    const graceS = deploymentOf(globals, 'global').spec.template.spec.terminationGracePeriodSeconds;
    expect(graceS * 1_000).toBeGreaterThanOrEqual(preStopS * 1_000 + acceptMs + drainMs + 10_000);
  });

  it('is locked down, runs our image, and is picked by what is meant for it', () => {
    expect(router.securityContext).toEqual(named(tier, 'router').securityContext);
    expect(kustomization('global').images).toEqual(kustomization('region').images);
    const { selector, template } = deploymentOf(globals, 'global').spec;
    const { labels } = template.metadata;
    const account = ofKind(globals, 'ServiceAccount')[0]?.metadata.name;
    expect([template.spec.serviceAccountName, template.spec.automountServiceAccountToken]).toEqual([
      account,
      false,
    ]);
    const budgets = ofKind(globals, 'PodDisruptionBudget') as unknown as {
      spec: { selector: { matchLabels: Labels } };
    }[];
    const selectors = [
      selector.matchLabels,
      ...template.spec.topologySpreadConstraints.map(
        ({ labelSelector }) => labelSelector.matchLabels,
      ),
      ...services(globals).map(({ spec }) => spec.selector),
      ...budgets.map(({ spec }) => spec.selector.matchLabels),
    ];
    expect(selectors.length).toBe(6);
    for (const each of selectors) {
      expect(picks(each, labels)).toBe(true);
      for (const { spec } of deployments(tier)) {
        expect(picks(each, spec.template.metadata.labels)).toBe(false);
      }
    }
  });
});

describe('a region behind global routers', () => {
  it('is the region alone but for its name and what stands between the tiers', () => {
    const { tier: port, global: uplink, ...rest } = tierFleet.router;
    const { tier: noPort, global: noUplink, ...alone } = fleet.router;
    expect([noPort, noUplink]).toEqual([null, null]);
    expect([port, uplink]).not.toContain(null);
    expect(rest).toEqual(alone);
    expect({ pools: tierFleet.pools, models: tierFleet.models }).toEqual({
      pools: fleet.pools,
      models: fleet.models,
    });
  });

  it('listens at its tier port, which a Service leads to', () => {
    const container = named(tier, 'router');
    const port = portOf(tierFleet.router.tier?.listen);
    expect(container.ports).toContainEqual({ name: 'tier', containerPort: port });
    const service = services(tier).find(({ metadata }) => metadata.name === 'spillway-tier');
    expect(service?.spec.ports[0]).toMatchObject({ port, targetPort: 'tier' });
    expect(
      deployments(tier).filter(({ spec }) =>
        picks(service?.spec.selector ?? {}, spec.template.metadata.labels),
      ),
    ).toEqual([deploymentOf(tier, 'router')]);
  });

  it('is what the global routers know: name, zone, address, key', () => {
    const known = globalFleet.regions.find(({ name }) => name === tierFleet.region);
    expect(tierFleet.regions.map(({ name, zone }) => ({ name, zone }))).toEqual([
      { name: known?.name, zone: known?.zone },
    ]);
    const namespace = kustomization('tier').namespace;
    expect(known?.baseUrl).toBe(
      `http://spillway-tier.${namespace}:${portOf(tierFleet.router.tier?.listen)}`,
    );
    expect(tierFleet.router.tier?.keys.map(({ id }) => id)).toEqual([known?.tierKey?.id]);
    expect(tierFleet.tenants).toEqual(globalFleet.tenants);
  });

  it('dials every global router, by the name of a Service without an address of its own', () => {
    const headless = services(globals).find(({ spec }) => spec.clusterIP === 'None');
    expect(headless?.spec.publishNotReadyAddresses).toBe(true);
    const links = portOf(global?.links.listen);
    expect(headless?.spec.ports.map(({ port }) => port)).toEqual([links]);
    const namespace = kustomization('global').namespace;
    expect(tierFleet.router.global?.urls).toEqual([
      `ws://${headless?.metadata.name}.${namespace}:${links}`,
    ]);
  });
});

describe('secrets between the tiers', () => {
  it('come from keys that the examples have', () => {
    for (const container of [
      ...deployments(globals).flatMap(containersOf),
      ...deployments(tier).flatMap(containersOf),
    ]) {
      for (const { name, key } of secretsOf(container)) {
        const secret = ['global', 'region', 'tier']
          .map(example)
          .find((each) => each?.metadata.name === name);
        expect(Object.keys(secret?.stringData ?? {})).toContain(key);
      }
    }
  });

  it('of a region are two, which its routers and the global routers have alike', () => {
    const own = secretsOf(named(tier, 'router'))
      .filter(({ name }) => name === 'spillway-tier')
      .map(({ variable }) => variable);
    expect(own.toSorted()).toEqual(['FRA_LINK_SECRET', 'FRA_TIER_KEY']);
    expect(secretsOf(router).map(({ variable }) => variable)).toEqual(expect.arrayContaining(own));
  });

  it.each(['global', 'tier'])('are refused as the example of %s has them', (folder) => {
    const [container] = deployments(folder === 'global' ? globals : tier).flatMap(containersOf);
    const at = folder === 'global' ? router : named(tier, 'router');
    expect(container).toBeDefined();
    const given = Object.fromEntries(
      secretsOf(at).map(({ variable, name, key }) => [
        variable,
        name === example(folder)?.metadata.name
          ? example(folder)?.stringData?.[key]
          : `${variable}-${'x'.repeat(32)}`,
      ]),
    );
    expect(loadFleet(fileOf(folder), given, [])).toMatchObject({
      ok: false,
      error: expect.stringContaining('is shorter than 16 characters') as string,
    });
  });
});
