// Who may speak with whom, as the policies of deploy/k8s add up: exactly what the processes need.

import { describe, expect, it } from 'vitest';
import { workerLinkPort, WORKERS_MAX } from '../../shared/model/worker-ports.ts';
import { DNS, flowsOf, policiesOf, type Direction, type Policy } from './kubernetes-flows.ts';
import {
  deploymentOf,
  fleet,
  globalFleet,
  globals,
  named,
  portOf,
  region,
  tier,
  tierFleet,
} from './kubernetes-region.ts';
import { documents, kustomization, picks, type Labels } from './kubernetes.ts';

describe('network policies', () => {
  const admin = portOf(fleet.router.admin?.listen) ?? 0;
  const clients = portOf(fleet.router.clients.listen) ?? 0;
  const links = portOf(fleet.router.links.listen) ?? 0;
  /** Of as many workers as a router may have beside its first. */
  const further = `${workerLinkPort(links, 2)}-${workerLinkPort(links, WORKERS_MAX)}`;
  const engine = named(region, 'engine').ports[0]?.containerPort ?? 0;
  const agent = named(region, 'agent').ports[0]?.containerPort ?? 0;

  const flows = (component: string, direction: Direction) => flowsOf(region, component, direction);

  it('deny what none of them allows', () => {
    for (const found of [region, globals]) {
      const all = policiesOf(found).find(({ spec }) => spec.podSelector.matchLabels === undefined);
      expect(all?.spec).toEqual({ podSelector: {}, policyTypes: ['Ingress', 'Egress'] });
    }
  });

  it('let clients, agents, other routers and Prometheus reach routers, each its own port', () => {
    expect(flows('router', 'ingress')).toEqual(
      [
        `engine ${links}`,
        `engine ${further}`,
        `router ${links}`,
        `router ${further}`,
        `kubernetes.io/metadata.name=monitoring ${admin}`,
        `spillway-clients=true ${clients}`,
      ].toSorted(),
    );
  });

  it('let routers reach engines, the agents beside them, for the address proof, and each other', () => {
    const siblings = [`router ${links}`, `router ${further}`];
    expect(flows('router', 'egress')).toEqual(
      [DNS, DNS, `engine ${engine}`, `engine ${agent}`, ...siblings].toSorted(),
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

describe('network policies between the tiers', () => {
  const REGION = 'kubernetes.io/metadata.name=spillway/router';
  const GLOBAL = 'kubernetes.io/metadata.name=spillway-global/global';
  const tierPort = portOf(tierFleet.router.tier?.listen) ?? 0;
  const { clients, links, admin } = globalFleet.global ?? {};

  it('stand in the namespaces that they name', () => {
    expect(kustomization('tier').namespace).toBe('spillway');
    expect(kustomization('global').namespace).toBe('spillway-global');
  });

  it('let routers of regions alone reach the links of global routers', () => {
    expect(flowsOf(globals, 'global', 'ingress')).toEqual(
      [
        `${REGION} ${portOf(links?.listen)}`,
        `kubernetes.io/metadata.name=monitoring ${portOf(admin?.listen)}`,
        `spillway-clients=true ${portOf(clients?.listen)}`,
      ].toSorted(),
    );
    expect(more('egress')).toEqual([`${GLOBAL} ${portOf(links?.listen)}`]);
  });

  it('let global routers alone reach the tier port of a region', () => {
    expect(more('ingress')).toEqual([`${GLOBAL} ${tierPort}`]);
    expect(flowsOf(globals, 'global', 'egress')).toEqual(
      [DNS, DNS, `${REGION} ${tierPort}`].toSorted(),
    );
  });

  it('leave engines and agents as they are', () => {
    for (const direction of ['ingress', 'egress'] as const) {
      expect(flowsOf(tier, 'engine', direction)).toEqual(flowsOf(region, 'engine', direction));
    }
  });

  /** What routers of a region behind global routers have beside those of a region alone. */
  function more(direction: Direction): string[] {
    const before = flowsOf(region, 'router', direction);
    const now = flowsOf(tier, 'router', direction);
    for (const flow of before) expect(now).toContain(flow);
    return now.filter((flow) => !before.includes(flow));
  }
});
