// The only place where the process's timers are set.

export interface Timers {
  /** Runs `task` once after `delayMs`; the returned function cancels it. */
  after(delayMs: number, task: () => void): () => void;
  /** Runs `task` every `intervalMs`, first after one interval; the returned function stops it. */
  every(intervalMs: number, task: () => void): () => void;
}

export const systemTimers: Timers = {
  after(delayMs, task) {
    const timer = setTimeout(task, delayMs);
    return () => clearTimeout(timer);
  },
  every(intervalMs, task) {
    const timer = setInterval(task, intervalMs);
    return () => clearInterval(timer);
  },
};
