// What an engine may answer, each with what becomes of it: another engine is asked, the client gets it, the client is told
// that it is incomplete, or the client is at fault.

import { HOSTILE_CONTENTS } from './upstream-bodies.ts';
import { HOSTILE_HEADS } from './upstream-heads.ts';
import type { HostileAnswer } from './upstream-plays.ts';

export const HOSTILE_ANSWERS: readonly HostileAnswer[] = [...HOSTILE_HEADS, ...HOSTILE_CONTENTS];
