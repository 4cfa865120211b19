// No cluster is at hand, so the manifests are held against each other and against the programs that they start: options,
// environment, ports, paths, selectors, policies and times.

import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { METRICS as AGENT_METRICS } from '../../agent/metrics.ts';
import { loadFleet } from '../../shared/config/load.ts';
import { check, commandNamed } from './command-line.ts';
import {
  argsOf,
  deploymentOf,
  fleet,
  globals,
  named,
  portOf,
  region,
  variablesOf,
} from './kubernetes-region.ts';
import {
  containersOf,
  deployments,
  documents,
  kustomization,
  manifests,
  ofKind,
  picks,
  text,
  type Container,
  type Labels,
} from './kubernetes.ts';

const ROOT = join(import.meta.dirname, '../..');
const SECRETS = ['SPILLWAY_LINK_SECRET', 'SPILLWAY_ENGINE_API_KEY'];
const VARIANTS = ['region', 'sglang', 'tgi', 'tier'];

/** What follows `flag` in an engine's arguments. */
function after({ args }: Container, flag: string): string | undefined {
  const at = args.indexOf(flag);
  return at === -1 ? undefined : args[at + 1];
}

describe.each(VARIANTS)('deploy/k8s/%s', (folder) => {
  const found = manifests(folder);
  const router = named(found, 'router');
  const agent = named(found, 'agent');
  const engine = named(found, 'engine');

  it.each([
    ['router', router],
    ['agent', agent],
  ])('%s: runs a command that exists, with variables that it reads', (name, container) => {
    check(argsOf(container));
    expect(container.args[0]).toBe(name);
    const known = commandNamed(name).options.flatMap((option) => option.envVar ?? []);
    const inFile = folder === 'tier' && name === 'router' ? variablesOf('tier') : [];
    for (const variable of container.env.map((each) => each.name)) {
      expect([...known, ...SECRETS, ...inFile, 'POD_IP']).toContain(variable);
    }
  });

  it.each([
    ['router', router],
    ['agent', agent],
  ])('%s: has probes at paths and ports that it answers', (_, container) => {
    for (const probe of [
      container.startupProbe,
      container.livenessProbe,
      container.readinessProbe,
    ]) {
      expect(container.ports.map(({ name }) => name)).toContain(probe?.httpGet.port);
    }
    expect(container.startupProbe?.httpGet.path).toBe('/livez');
    expect(container.livenessProbe?.httpGet.path).toBe('/livez');
    expect(container.readinessProbe?.httpGet.path).toBe('/readyz');
  });

  it('runs our image everywhere, in the version of the package', () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      version: string;
    };
    expect(kustomization('region').images).toEqual([
      { name: 'spillway', newName: 'spillway', newTag: version },
    ]);
    for (const { image } of [router, agent]) expect(image).toBe('spillway');
    expect(engine.image).toMatch(/:v?\d+\.\d+\.\d+$/);
  });

  it('lets the agent speak with the engine beside it, and routers with both', () => {
    const flags = check(argsOf(agent));
    const enginePort = after(engine, '--port');
    expect(flags['engine']).toEqual([`http://127.0.0.1:${enginePort}`]);
    expect(flags['advertise']).toEqual([`http://10.244.3.7:${enginePort}`]);
    expect(engine.ports).toEqual([{ name: 'engine', containerPort: Number(enginePort) }]);
    expect(engine.args).toContain('0.0.0.0');
    expect(agent.ports[0]?.containerPort).toBe(portOf(String(flags['listen'])));
    expect(agent.env.find(({ name }) => name === 'POD_IP')?.valueFrom?.fieldRef?.fieldPath).toBe(
      'status.podIP',
    );
  });

  it('tells the agent of KV events exactly where the engine publishes them', () => {
    const flags = check(argsOf(agent));
    const config = after(engine, '--kv-events-config');
    const { endpoint, replay_endpoint: replay } = JSON.parse(config ?? '{}') as {
      endpoint?: string;
      replay_endpoint?: string;
    };
    const local = (address: string | undefined): string[] | undefined =>
      address === undefined ? undefined : [address.replace('*', '127.0.0.1')];
    expect(flags['kvEvents']).toEqual(local(endpoint));
    expect(flags['kvEventsReplay']).toEqual(local(replay));
  });

  it('has the agent of the region, but for its KV events', () => {
    const own = { kvEvents: undefined, kvEventsReplay: undefined };
    const flags = (container: Container): object => ({ ...check(argsOf(container)), ...own });
    expect(flags(agent)).toEqual(flags(named(region, 'agent')));
  });

  it('writes the log of the engine where the agent reads it', () => {
    const log = String((check(argsOf(agent))['engineLog'] as string[])[0]);
    const mount = (container: Container): string | undefined =>
      container.volumeMounts.find(({ name }) => name === 'engine-log')?.mountPath;
    expect(engine.command?.join(' ')).toContain(`> ${log}`);
    expect(log.startsWith(`${mount(engine)}/`)).toBe(true);
    expect(mount(agent)).toBe(mount(engine));
  });

  it('has the agent as a native sidecar that drains its engine before it is told to stop', () => {
    const { spec } = deploymentOf(found, 'engine').spec.template;
    expect(spec.initContainers?.map(({ name }) => name)).toEqual(['agent']);
    expect(agent.restartPolicy).toBe('Always');
    const [program, ...words] = agent.lifecycle?.preStop?.exec?.command ?? [];
    expect(program).toBe('/opt/spillway/bin/spillway');
    check(words);
    const port = agent.ports.find(({ name }) => name === 'agent')?.containerPort;
    expect(words).toEqual(['drain', `http://127.0.0.1:${port}`]);
    expect(engine.lifecycle?.preStop?.sleep?.seconds).toBeGreaterThanOrEqual(5);
  });

  it('gives the engine shared memory, a GPU, and no probe that could kill it while it loads', () => {
    const { spec } = deploymentOf(found, 'engine').spec.template;
    const shm = engine.volumeMounts.find(({ mountPath }) => mountPath === '/dev/shm');
    expect(spec.volumes.find(({ name }) => name === shm?.name)?.emptyDir?.medium).toBe('Memory');
    expect(engine.resources.limits['nvidia.com/gpu']).toBeGreaterThan(0);
    expect(engine.livenessProbe ?? engine.startupProbe).toBeUndefined();
  });

  it('mounts volumes that exist', () => {
    for (const deployment of deployments(found)) {
      const { volumes } = deployment.spec.template.spec;
      for (const { volumeMounts } of containersOf(deployment)) {
        for (const { name } of volumeMounts) {
          expect(volumes.map((volume) => volume.name)).toContain(name);
        }
      }
      for (const { configMap, persistentVolumeClaim } of volumes) {
        if (configMap !== undefined) expect(configMap.name).toBe('spillway-fleet');
        if (persistentVolumeClaim === undefined) continue;
        const claims = ofKind(found, 'PersistentVolumeClaim').map(({ metadata }) => metadata.name);
        expect(claims).toContain(persistentVolumeClaim.claimName);
      }
    }
  });

  it('locks our own containers down', () => {
    for (const { securityContext } of [router, agent]) {
      expect(securityContext).toMatchObject({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      });
    }
    for (const { spec } of deployments(found).map((each) => each.spec.template)) {
      expect(spec.automountServiceAccountToken).toBe(false);
      const accounts = ofKind(found, 'ServiceAccount').map(({ metadata }) => metadata.name);
      expect(accounts).toContain(spec.serviceAccountName);
    }
  });
});

describe('files', () => {
  const files = readdirSync(join(ROOT, 'deploy/k8s'), { recursive: true, encoding: 'utf8' });

  it.each(files.filter((file) => file.endsWith('.yaml')))('%s is YAML', (file) => {
    expect(documents(file).length).toBeGreaterThan(0);
  });

  it('are all applied by their folder, but for secrets and downloads, which are applied by hand', () => {
    const applied = files
      .filter((file) => file.endsWith('kustomization.yaml'))
      .flatMap((file) => {
        const folder = dirname(file);
        const { resources, patches = [], configMapGenerator = [] } = kustomization(folder);
        const named = [
          ...resources,
          ...patches.map(({ path }) => path),
          ...configMapGenerator.flatMap((map) => map.files),
        ];
        return [file, ...named.map((name) => join(folder, name))];
      });
    const rest = files.filter((file) => file.includes('.') && !applied.includes(file));
    expect(rest.toSorted()).toEqual(
      ['global', 'region', 'tier']
        .map((folder) => `${folder}/secret.example.yaml`)
        .concat('region/downloads.yaml')
        .toSorted(),
    );
  });
});

describe('times', () => {
  it('a router has its hook, acceptMs and drainMs before it is killed', () => {
    const { acceptMs, drainMs } = fleet.router.shutdown;
    expect(drainMs).toBeGreaterThanOrEqual(900_000);
    const preStopS = named(region, 'router').lifecycle?.preStop?.sleep?.seconds ?? 0;
    const { terminationGracePeriodSeconds: graceS } = deploymentOf(region, 'router').spec.template
      .spec;
    expect(graceS * 1_000).toBeGreaterThanOrEqual(preStopS * 1_000 + acceptMs + drainMs + 10_000);
  });

  it('vLLM finishes what runs for as long as routers drain, and is killed after that', () => {
    const engine = named(region, 'engine');
    const drainS = Number(after(engine, '--shutdown-timeout'));
    expect(drainS * 1_000).toBeGreaterThanOrEqual(fleet.router.shutdown.drainMs);
    const preStopS = engine.lifecycle?.preStop?.sleep?.seconds ?? 0;
    const { terminationGracePeriodSeconds: graceS } = deploymentOf(region, 'engine').spec.template
      .spec;
    expect(graceS).toBeGreaterThanOrEqual(preStopS + drainS + 10);
  });
});

describe('the configuration', () => {
  it('is mounted as a folder where the router looks for it', () => {
    const router = named(region, 'router');
    const config = String(check([...router.args])['config']);
    const mounted = kustomization('region').configMapGenerator?.[0];
    expect(mounted?.name).toBe('spillway-fleet');
    expect(mounted?.files.map((file) => `${router.volumeMounts[0]?.mountPath}/${file}`)).toEqual([
      config,
    ]);
  });

  it('listens on the ports that the router has, and knows the pool of the agents', () => {
    const { clients, links, admin } = fleet.router;
    expect(named(region, 'router').ports).toEqual([
      { name: 'clients', containerPort: portOf(clients.listen) },
      { name: 'links', containerPort: portOf(links.listen) },
      { name: 'admin', containerPort: portOf(admin?.listen) },
    ]);
    const { pool } = check(argsOf(named(region, 'agent')));
    expect(fleet.pools.map(({ id }) => id)).toContain(pool);
    expect(deploymentOf(region, 'engine').spec.template.metadata.labels['pool']).toBe(pool);
  });

  it('names the model that the engine serves', () => {
    const { args } = named(region, 'engine');
    for (const { engineModel } of Object.values(fleet.models)) expect(args).toContain(engineModel);
  });

  it('takes its secrets from keys that the example has', () => {
    const [example] = documents('region/secret.example.yaml');
    const keys = Object.keys(example?.stringData ?? {});
    for (const { env } of deployments(region).flatMap(containersOf)) {
      for (const { valueFrom } of env) {
        if (valueFrom?.secretKeyRef === undefined) continue;
        expect(valueFrom.secretKeyRef.name).toBe(example?.metadata.name);
        expect(keys).toContain(valueFrom.secretKeyRef.key);
      }
    }
  });

  it('is refused with the secret of the example, which somebody could leave as it is', () => {
    const [example] = documents('region/secret.example.yaml');
    const environment = {
      SPILLWAY_LINK_SECRET: example?.stringData?.['link-secret'],
      SPILLWAY_ENGINE_API_KEY: 'a-key',
    };
    expect(loadFleet(join(ROOT, 'deploy/k8s/region/fleet.yaml'), environment, []).ok).toBe(false);
  });
});

describe('selectors', () => {
  const pods = deployments(region).map(({ spec }) => spec.template.metadata.labels);

  it('of deployments pick their own pods only', () => {
    for (const { spec } of deployments(region)) {
      const { matchLabels } = spec.selector;
      expect(pods.filter((labels) => picks(matchLabels, labels))).toEqual([
        spec.template.metadata.labels,
      ]);
      for (const { labelSelector } of spec.template.spec.topologySpreadConstraints) {
        expect(labelSelector.matchLabels).toEqual(matchLabels);
      }
    }
  });

  it('of services pick the routers, at ports that they name', () => {
    const services = ofKind(region, 'Service') as unknown as {
      metadata: { name: string };
      spec: {
        clusterIP?: string;
        publishNotReadyAddresses?: boolean;
        selector: Labels;
        ports: { port: number; targetPort: string }[];
      };
    }[];
    expect(services).toHaveLength(2);
    const ports = named(region, 'router').ports;
    for (const { spec } of services) {
      expect(pods.filter((labels) => picks(spec.selector, labels))).toEqual([
        deploymentOf(region, 'router').spec.template.metadata.labels,
      ]);
      for (const { targetPort } of spec.ports) {
        expect(ports.map(({ name }) => name)).toContain(targetPort);
      }
    }
    const headless = services.find(({ spec }) => spec.clusterIP === 'None');
    expect(headless?.spec.publishNotReadyAddresses).toBe(true);
    // Nothing translates ports where there is no cluster address.
    const links = portOf(fleet.router.links.listen);
    expect(headless?.spec.ports.map(({ port }) => port)).toEqual([links]);
    const { router } = check(argsOf(named(region, 'agent')));
    expect(router).toEqual([`ws://${headless?.metadata.name}:${links}`]);
  });

  it('of disruption budgets cover each deployment once', () => {
    const budgets = ofKind(region, 'PodDisruptionBudget') as unknown as {
      spec: { selector: { matchLabels: Labels } };
    }[];
    const covered = budgets.flatMap(({ spec }) =>
      pods.filter((labels) => picks(spec.selector.matchLabels, labels)),
    );
    expect(covered.length).toBe(budgets.length);
    expect(new Set(covered)).toEqual(new Set(pods));
  });
});

describe('monitoring and autoscaling', () => {
  it('scrape ports that pods name, with labels that pods have', () => {
    const monitors = documents('monitoring/pod-monitors.yaml') as unknown as {
      spec: {
        namespaceSelector?: { matchNames: string[] };
        selector: { matchLabels: Labels };
        podTargetLabels?: string[];
        podMetricsEndpoints: { port: string; path: string }[];
      };
    }[];
    const scraped = monitors.map(({ spec }) => {
      const [namespace = 'spillway'] = spec.namespaceSelector?.matchNames ?? [];
      const there = [region, globals][['spillway', 'spillway-global'].indexOf(namespace)] ?? [];
      const meant = deployments(there).filter((deployment) =>
        picks(spec.selector.matchLabels, deployment.spec.template.metadata.labels),
      );
      const ports = meant.flatMap(containersOf).flatMap((container) => container.ports);
      const labels = meant[0]?.spec.template.metadata.labels ?? {};
      for (const label of spec.podTargetLabels ?? []) expect(Object.keys(labels)).toContain(label);
      for (const { port, path } of spec.podMetricsEndpoints) {
        expect(ports.map(({ name }) => name)).toContain(port);
        expect(path).toBe('/metrics');
      }
      return meant.map(({ metadata }) => metadata.name);
    });
    expect(scraped).toEqual([['spillway-router'], ['llama-8b'], ['spillway-global']]);
  });

  it('add no label that a metric of the agent has itself', () => {
    for (const { labels } of AGENT_METRICS) expect(labels).not.toContain('pool');
  });

  it('scale a deployment that exists, above its own count', () => {
    const [scaled] = documents('autoscaling/scaled-object.yaml') as unknown as {
      spec: { scaleTargetRef: { name: string }; minReplicaCount: number; maxReplicaCount: number };
    }[];
    const engines = deploymentOf(region, 'engine');
    expect(scaled?.spec.scaleTargetRef.name).toBe(engines.metadata.name);
    expect(scaled?.spec.minReplicaCount).toBe(engines.spec.replicas);
    expect(scaled?.spec.maxReplicaCount).toBeGreaterThan(engines.spec.replicas);
  });

  it('are all listed in their kustomizations', () => {
    for (const folder of ['monitoring', 'autoscaling']) {
      for (const manifest of manifests(folder)) expect(manifest.apiVersion).toMatch(/\/v1/);
      for (const { files } of kustomization(folder).configMapGenerator ?? []) {
        for (const file of files) expect(text(`${folder}/${file}`)).not.toBe('');
      }
    }
  });
});
