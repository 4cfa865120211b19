// Who may speak with whom, as the policies of deploy/k8s/region add up: exactly what the processes need.

import { describe, expect, it } from 'vitest';
import { workerLinkPort, WORKERS_MAX } from '../../shared/model/worker-ports.ts';
import { deploymentOf, fleet, named, portOf, region } from './kubernetes-region.ts';
import { deployments, documents, ofKind, picks, type Labels } from './kubernetes.ts';

interface Peer {
  readonly namespaceSelector?: { readonly matchLabels: Labels };
  readonly podSelector?: { readonly matchLabels: Labels };
}

interface Ports {
  readonly port: number;
  /** The last of a range that begins with `port`. */
  readonly endPort?: number;
}

interface Policy {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly podSelector: { readonly matchLabels?: Labels };
    readonly policyTypes: readonly string[];
    readonly ingress?: readonly { from: readonly Peer[]; ports: readonly Ports[] }[];
    readonly egress?: readonly { to: readonly Peer[]; ports: readonly Ports[] }[];
  };
}

describe('network policies', () => {
  const policies = ofKind(region, 'NetworkPolicy') as unknown as Policy[];
  const admin = portOf(fleet.router.admin?.listen) ?? 0;
  const clients = portOf(fleet.router.clients.listen) ?? 0;
  const links = portOf(fleet.router.links.listen) ?? 0;
  /** Of as many workers as a router may have beside its first. */
  const further = `${workerLinkPort(links, 2)}-${workerLinkPort(links, WORKERS_MAX)}`;
  const engine = named(region, 'engine').ports[0]?.containerPort ?? 0;
  const agent = named(region, 'agent').ports[0]?.containerPort ?? 0;

  /** `who → port` for everything that may reach pods of a component, or that they may reach. */
  function flows(component: string, direction: 'ingress' | 'egress'): string[] {
    const { labels } = deploymentOf(region, component).spec.template.metadata;
    return policies
      .filter(({ spec }) => picks(spec.podSelector.matchLabels ?? {}, labels))
      .flatMap(({ spec }) =>
        direction === 'ingress'
          ? (spec.ingress ?? []).map(({ from, ports }) => ({ peers: from, ports }))
          : (spec.egress ?? []).map(({ to, ports }) => ({ peers: to, ports })),
      )
      .flatMap(({ peers, ports }) =>
        peers.flatMap((peer) =>
          ports.map(({ port, endPort }) => {
            const range = endPort === undefined ? port : `${port}-${endPort}`;
            return `${nameOf(peer)} ${range}`;
          }),
        ),
      )
      .toSorted();
  }

  function nameOf({ namespaceSelector, podSelector }: Peer): string {
    if (namespaceSelector !== undefined) {
      return Object.entries(namespaceSelector.matchLabels)
        .map((pair) => pair.join('='))
        .join(',');
    }
    const picked = deployments(region).filter(({ spec }) =>
      picks(podSelector?.matchLabels ?? {}, spec.template.metadata.labels),
    );
    expect(picked).toHaveLength(1);
    return picked[0]?.spec.template.metadata.labels['app.kubernetes.io/component'] ?? '';
  }

  const DNS = 'kubernetes.io/metadata.name=kube-system 53';

  it('deny what none of them allows', () => {
    const all = policies.find(({ spec }) => spec.podSelector.matchLabels === undefined);
    expect(all?.spec).toEqual({ podSelector: {}, policyTypes: ['Ingress', 'Egress'] });
  });

  it('let clients, agents and Prometheus reach routers, each its own port', () => {
    expect(flows('router', 'ingress')).toEqual(
      [
        `engine ${links}`,
        `engine ${further}`,
        `kubernetes.io/metadata.name=monitoring ${admin}`,
        `spillway-clients=true ${clients}`,
      ].toSorted(),
    );
  });

  it('let routers reach engines and the agents beside them, for the address proof', () => {
    expect(flows('router', 'egress')).toEqual(
      [DNS, DNS, `engine ${engine}`, `engine ${agent}`].toSorted(),
    );
    expect(flows('engine', 'ingress')).toEqual(
      [
        `router ${engine}`,
        `router ${agent}`,
        `kubernetes.io/metadata.name=monitoring ${agent}`,
      ].toSorted(),
    );
  });

  it('let engines and agents reach the links alone', () => {
    expect(flows('engine', 'egress')).toEqual(
      [DNS, DNS, `router ${links}`, `router ${further}`].toSorted(),
    );
  });

  it('open downloads for engines and nobody else', () => {
    const [policy] = documents('region/downloads.yaml') as unknown as Policy[];
    const selector = policy?.spec.podSelector.matchLabels ?? {};
    const labels = (component: string): Labels =>
      deploymentOf(region, component).spec.template.metadata.labels;
    expect(picks(selector, labels('engine'))).toBe(true);
    expect(picks(selector, labels('router'))).toBe(false);
  });
});
