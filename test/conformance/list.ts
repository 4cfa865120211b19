// All checks, in the order in which a run makes them: those that end an engine last.

import type { Theme } from './check.ts';
import { STREAMS } from './checks-streams.ts';
import { SURFACE } from './checks-surface.ts';

export const THEMES: readonly Theme[] = [SURFACE, STREAMS];
