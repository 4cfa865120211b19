// A router with workers: the parent's listeners, its processes, and what joins them.

import type { RouterOptions, RouterReloadable } from '../../router/regional/options.ts';
import type { HandedListener } from '../../router/regional/workers/messages.ts';
import { workerShare } from '../../router/regional/workers/shares.ts';
import { WorkersParent } from '../../router/regional/workers/parent.ts';
import type { DrainOptions } from '../../router/gateway/leaving.ts';
import { workerLinkPort } from '../../shared/model/worker-ports.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { Acceptor } from './acceptor.ts';
import { ProcessCrew } from './crew.ts';

export interface WorkersOptions {
  readonly count: number;
  readonly options: RouterOptions;
  readonly log: { readonly level: string; readonly readable: boolean };
  /** ms in which a worker's requests may end that a signal of its own tells to end. */
  readonly drainMs: number;
}

export interface RunningWorkers {
  reload(reloadable: RouterReloadable): Promise<void>;
  drain(options: DrainOptions): Promise<void>;
  close(): Promise<void>;
}

/** Rejects as a single router does, and with `CrewUnusable` where there can be no workers. */
export async function startWorkers(
  { count, options, log, drainMs }: WorkersOptions,
  runtime: RoleRuntime,
): Promise<RunningWorkers> {
  const { admin, clients, links, tier = null } = options;
  if (admin === null) throw new Error('workers need a listener for operators');
  let clientsPort = clients.port;
  let tierPort = tier?.port ?? null;
  const crew = new ProcessCrew({
    ...{ count, clock: runtime.clock, timers: runtime.timers, log: runtime.log, drainMs },
    linksPortOf: (number) => workerLinkPort(links.port, number),
    startOf: (number, linksPort, linkPorts) => ({
      ...{ number, count, log, linkPorts },
      options: {
        ...options,
        links: { ...links, port: linksPort },
        admin: null,
        reloadable: workerShare(parent.reloadable, count),
      },
      clientsPort,
      tierPort,
      marked: parent.leaving,
    }),
    events: {
      onMessage: (number, message) => {
        if (message.kind === 'journal') parent.journal(number, message.entries);
        else if (message.kind === 'beat') parent.beat(number, message.beat);
        else if (message.kind === 'claim') {
          const { id, attempt } = message;
          crew.answer(number, { kind: 'claimed', id, why: parent.claim(attempt) });
        }
      },
      onEnded: (number, died) => parent.ended(number, died),
      onUp: () => {
        for (const acceptor of Object.values(acceptors)) acceptor.release();
      },
      onUntaken: (untaken) => {
        for (const { socket, on } of untaken) acceptors[on].give(socket);
      },
    },
  });
  const parent = new WorkersParent({ options, runtime, crew });
  const acceptorOn = (on: HandedListener): Acceptor =>
    new Acceptor({
      on,
      timers: runtime.timers,
      takers: () => crew.takers(),
      onDrop: () => parent.dropped(),
    });
  const acceptors = { clients: acceptorOn('clients'), tier: acceptorOn('tier') };
  const close = async (): Promise<void> => {
    crew.end();
    await parent.close();
    await crew.gone();
    await Promise.all([acceptors.clients.close(), acceptors.tier.close()]);
  };
  try {
    clientsPort = await acceptors.clients.listen(clients);
    if (tier !== null) tierPort = await acceptors.tier.listen(tier);
    await parent.listen(admin);
    await crew.start();
  } catch (error) {
    await close();
    throw error;
  }
  const linkPorts = crew.members().map(({ linksPort }) => linksPort);
  const { adminPort } = parent;
  const ports = { clientsPort, linksPort: linkPorts[0], adminPort, tierPort };
  const fields = { ...ports, workers: count, linkPorts };
  runtime.log.info(fields, 'router listening');
  return {
    reload: (reloadable) => parent.reload(reloadable),
    drain: (drain) => parent.drain(drain),
    close,
  };
}
