// What the parts of an agent's core share: settings, randomness, and where effects go.

import type { AgentEffect } from './events.ts';
import type { LogLevel } from '../shared/errors.ts';
import type { Random } from '../shared/lib/random.ts';
import type { AgentSettings } from '../shared/model/settings.ts';

export type LogFields = Readonly<Record<string, string | number | boolean | null>>;

export interface CoreContext {
  readonly settings: AgentSettings;
  readonly random: Random;
  emit(effect: AgentEffect): void;
  log(level: LogLevel, code: string, fields: LogFields): void;
  /** A text that no other call and no other agent returns. */
  unique(): string;
}
