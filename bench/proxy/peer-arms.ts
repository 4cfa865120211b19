// Routers for the same purpose, as their users get them: each pinned version from its public package (`bench/peers.ts`).

import { freePorts } from '../../test/free-ports.ts';
import { peerCommand, preparePeer, type PeerName, type PeerPolicy } from '../peers.ts';
import { startProxy, urlOf, type Arm } from './arms.ts';

export const PEER_ARMS: readonly Arm[] = [
  peer('vllm-router', 'round_robin'),
  peer('vllm-router', 'cache_aware'),
  peer('smg', 'round_robin'),
  peer('smg', 'cache_aware'),
];

function peer(name: PeerName, policy: PeerPolicy): Arm {
  const arm = `${name}-${policy.replace('_', '-')}`;
  return {
    name: arm,
    missing: (say) => preparePeer(name, say),
    async start({ folder, replicas }) {
      const [port, metricsPort] = (await freePorts(2)) as [number, number];
      const workerUrls = replicas.map(urlOf);
      const command = peerCommand(name, { port, metricsPort, workerUrls, policy });
      return startProxy(arm, command, { port, folder });
    },
  };
}
