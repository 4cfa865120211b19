// A router with workers: the parent's listeners, its processes, and what joins them.

import type { RouterOptions, RouterReloadable } from '../../router/regional/options.ts';
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
  const { admin, clients, links } = options;
  if (admin === null) throw new Error('workers need a listener for operators');
  let clientsPort = clients.port;
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
      marked: parent.leaving,
    }),
    events: {
      onMessage: (number, message) => {
        if (message.kind === 'journal') parent.journal(number, message.entries);
        else if (message.kind === 'beat') parent.beat(number, message.beat);
      },
      onEnded: (number, died) => parent.ended(number, died),
      onUp: () => acceptor.release(),
      onUntaken: (sockets) => {
        for (const socket of sockets) acceptor.give(socket);
      },
    },
  });
  const parent = new WorkersParent({ options, runtime, crew });
  const acceptor = new Acceptor({
    timers: runtime.timers,
    takers: () => crew.takers(),
    onDrop: () => parent.dropped(),
  });
  const close = async (): Promise<void> => {
    crew.end();
    await parent.close();
    await crew.gone();
    await acceptor.close();
  };
  try {
    clientsPort = await acceptor.listen(clients);
    await parent.listen(admin);
    await crew.start();
  } catch (error) {
    await close();
    throw error;
  }
  const linkPorts = crew.members().map(({ linksPort }) => linksPort);
  const { adminPort } = parent;
  const fields = { clientsPort, linksPort: linkPorts[0], adminPort, workers: count, linkPorts };
  runtime.log.info(fields, 'router listening');
  return {
    reload: (reloadable) => parent.reload(reloadable),
    drain: (drain) => parent.drain(drain),
    close,
  };
}
