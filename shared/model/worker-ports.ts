// Where the workers of a router listen for agents: worker 1 at the configured port, where every agent finds it, the further
// ones from 10 above it on, one after the other (8081, then 8091, 8092, …), beside the router's other listeners. Port 0:
// each where the system puts it.

/** Workers of one router: each holds the whole index and has a link with every agent. */
export const WORKERS_MAX = 64;
/** From the port of the first worker to that of the second. */
const FURTHER_PORTS = 10;

/** The link port of worker `number`, counted from 1. */
export function workerLinkPort(port: number, number: number): number {
  if (port === 0 || number === 1) return port;
  return port + FURTHER_PORTS + number - 2;
}
