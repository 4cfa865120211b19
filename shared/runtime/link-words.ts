// What a link is about, for its two ends: the messages, how they are read and written, and whom a hello speaks for.

import type { Decoded } from '../protocol/map-frame.ts';
import type { RouterId } from '../model/ids.ts';

export interface AnyMessage {
  readonly kind: string;
}

export interface AnyHello extends AnyMessage {
  readonly kind: 'hello';
  readonly protocol: readonly [number, number];
}

export interface AnyWelcome extends AnyMessage {
  readonly kind: 'welcome';
  readonly protocol: number;
  readonly routerId: RouterId;
  readonly software: string;
}

/** The side that is dialled. */
export interface ParentWords<
  Hello extends AnyHello,
  Child extends AnyMessage,
  Parent extends AnyMessage,
> {
  readonly version: number;
  readonly decode: (frame: Uint8Array) => Decoded<Hello | Child>;
  readonly encode: (message: Parent) => Uint8Array;
  /** Its credential must speak for this. */
  readonly speaksFor: (hello: Hello) => string;
  readonly child: 'agent' | 'region' | 'router';
  /** Who it says it is, for the log. */
  readonly named: (hello: Hello) => Readonly<Record<string, string>>;
}

/** The side that dials. */
export interface ChildWords<
  Child extends AnyMessage,
  Welcome extends AnyWelcome,
  Parent extends AnyMessage,
> {
  readonly version: number;
  readonly decode: (frame: Uint8Array) => Decoded<Welcome | Parent>;
  readonly encode: (message: Child) => Uint8Array;
  /** Link addresses of further routers. */
  readonly siblings: (welcome: Welcome) => readonly string[];
}

export function isHello<Hello extends AnyHello, Child extends AnyMessage>(
  message: Hello | Child,
): message is Hello {
  return message.kind === 'hello';
}

export function isWelcome<Welcome extends AnyWelcome, Parent extends AnyMessage>(
  message: Welcome | Parent,
): message is Welcome {
  return message.kind === 'welcome';
}
