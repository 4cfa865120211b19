// What an engine core is told from outside, besides requests and their aborts.

/** What becomes of the requests inside: ended at once, finished first, kept as they are. */
export type PauseMode = 'abort' | 'wait' | 'keep';

/** How deep an engine sleeps: only paused; weights offloaded; everything given up. From 1 on its KV is lost. */
export type SleepLevel = 0 | 1 | 2;

export interface PauseCommand {
  readonly kind: 'pause';
  readonly mode: PauseMode;
  readonly clearCache: boolean;
  /** Null for a pause that is no sleep. */
  readonly sleepLevel: SleepLevel | null;
}

export type CoreCommand =
  | PauseCommand
  /** Ends a pause or a sleep. */
  | { readonly kind: 'resume' }
  | { readonly kind: 'shutdown'; readonly mode: 'abort' | 'drain' };
