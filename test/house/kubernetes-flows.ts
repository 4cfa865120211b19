// Who may reach whom, as all policies of some manifests together let them.

import { expect } from 'vitest';
import { deploymentOf } from './kubernetes-region.ts';
import { deployments, ofKind, picks, type Labels, type Manifest } from './kubernetes.ts';

interface Peer {
  readonly namespaceSelector?: { readonly matchLabels: Labels };
  readonly podSelector?: { readonly matchLabels: Labels };
}

interface Ports {
  readonly port: number;
  /** The last of a range that begins with `port`. */
  readonly endPort?: number;
}

export interface Policy {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly podSelector: { readonly matchLabels?: Labels };
    readonly policyTypes: readonly string[];
    readonly ingress?: readonly { from: readonly Peer[]; ports: readonly Ports[] }[];
    readonly egress?: readonly { to: readonly Peer[]; ports: readonly Ports[] }[];
  };
}

export type Direction = 'ingress' | 'egress';

export const DNS = 'kubernetes.io/metadata.name=kube-system 53';
const COMPONENT = 'app.kubernetes.io/component';

export function policiesOf(found: readonly Manifest[]): Policy[] {
  return ofKind(found, 'NetworkPolicy') as unknown as Policy[];
}

/** `who port` for everything that may reach pods of a component, or that they may reach. */
export function flowsOf(
  found: readonly Manifest[],
  component: string,
  direction: Direction,
): string[] {
  const { labels } = deploymentOf(found, component).spec.template.metadata;
  return policiesOf(found)
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
          return `${nameOf(peer, found)} ${range}`;
        }),
      ),
    )
    .toSorted();
}

function nameOf({ namespaceSelector, podSelector }: Peer, found: readonly Manifest[]): string {
  const component = podSelector?.matchLabels[COMPONENT];
  if (namespaceSelector !== undefined) {
    const namespace = Object.entries(namespaceSelector.matchLabels)
      .map((pair) => pair.join('='))
      .join(',');
    return component === undefined ? namespace : `${namespace}/${component}`;
  }
  const picked = deployments(found).filter(({ spec }) =>
    picks(podSelector?.matchLabels ?? {}, spec.template.metadata.labels),
  );
  expect(picked).toHaveLength(1);
  return picked[0]?.spec.template.metadata.labels[COMPONENT] ?? '';
}
