// How every link begins: the side that dials says hello, the other one answers with a welcome. Each kind of link adds what
// its own two sides have to know of one another.

import { z } from 'zod';
import type { RouterId } from '../model/ids.ts';
import { MAX_FEATURES } from './limits.ts';
import { count, idOf, text } from './schema-fields.ts';

export interface AnyHello {
  readonly kind: 'hello';
  /** Least and greatest protocol version understood. */
  readonly protocol: readonly [number, number];
  /** What this side can do beyond the first version. */
  readonly features: readonly string[];
  readonly software: string;
}

export interface AnyWelcome {
  readonly kind: 'welcome';
  /** The version that both speak from now on. */
  readonly protocol: number;
  /** What this side can do beyond the first version. */
  readonly features: readonly string[];
  readonly routerId: RouterId;
  readonly software: string;
}

const features = z.array(text).max(MAX_FEATURES);

export const helloFields = {
  kind: z.literal('hello'),
  protocol: z.tuple([count, count]),
  features,
  software: text,
} as const;

export const welcomeFields = {
  kind: z.literal('welcome'),
  protocol: count,
  features,
  routerId: idOf<RouterId>(),
  software: text,
} as const;
