// What a link is about, for its two ends: the messages, how they are read and written, and whom a hello speaks for.

import type { AnyHello, AnyWelcome } from '../protocol/greeting.ts';
import type { Decoded } from '../protocol/map-frame.ts';

export interface AnyMessage {
  readonly kind: string;
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
