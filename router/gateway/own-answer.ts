// Whether an error comes from a router of ours, or from another server that stands where one was expected: a wrong host, port
// or path in a base URL, a proxy that leads elsewhere. What such a one says of "not found" is nothing about the request.
//
//   ours     bears `server-timing` where it was routed, `x-spillway-request-id` where it was not
//   another  404, 405 or 410 without either. Other errors pass: a proxy on the way may well find a request too large

import type { IncomingHttpHeaders } from 'node:http';

const NOT_FOUND_STATUSES: readonly number[] = [404, 405, 410];

export function isAnotherServer(status: number, headers: IncomingHttpHeaders): boolean {
  if (!NOT_FOUND_STATUSES.includes(status)) return false;
  return headers['server-timing'] === undefined && headers['x-spillway-request-id'] === undefined;
}

/** As the detail of a fault. */
export function anotherServer(status: number): string {
  return `status ${status} of another server`;
}

/** The status in such a detail; null: it is another one. */
export function anotherServersStatus(detail: string): string | null {
  return /^status (\d+) of another server$/.exec(detail)?.[1] ?? null;
}
