// What the checks of this folder are run on: an engine at a URL that can be started, broken and ended.
//
// The same checks hold for the simulated engine and for the real vLLM. What a subject does not have (`capabilities`),
// a check that needs it skips. Sizes are told, so that a check can fill a queue or a cache whatever its size.

/** What not every subject has. */
export type Capability =
  /** KV events over ZeroMQ, with replay. */
  | 'kv-events'
  /** `/reset_prefix_cache` and its like. */
  | 'dev-mode'
  /** A limit on requests in flight. */
  | 'queue-limit'
  /** A KV cache small enough to be filled in seconds. */
  | 'small-kv'
  /** Weights that can be put aside and taken back. */
  | 'sleep'
  /** An adapter beside the base model. */
  | 'lora'
  /** Processes can be killed, stopped and started. */
  | 'faults';

export interface SubjectSizes {
  readonly maxModelLen: number;
  readonly maxNumSeqs: number;
  readonly maxBatchedTokens: number;
  readonly blockTokens: number;
  /** Blocks in all, the one that is never handed out among them. */
  readonly kvBlocks: number;
  /** Requests in flight before one is refused; null for no limit. */
  readonly maxInFlight: number | null;
}

export interface SubjectEvents {
  /** Endpoint of the publisher, to connect to; of a further rank one port above. */
  readonly publish: string;
  readonly replay: string;
  readonly topic: string;
}

export interface SubjectControls {
  /** A new process; settled when it exists. Until it has loaded, its port refuses. */
  start(): Promise<void>;
  /** Whether the process exists. */
  running(): boolean;
  /** Stops the process that computes, as a hung device does; the front end goes on. */
  freezeCore(): Promise<void>;
  thawCore(): Promise<void>;
  /** Kills the process that computes. */
  killCore(): Promise<void>;
  /** SIGTERM to the server, and nothing more. */
  terminate(): void;
  /** Ends whatever is left of it; nothing where nothing is left. */
  stop(): Promise<void>;
}

export interface ConformanceSubject {
  readonly name: string;
  /** Base URL without a path; the same over restarts. */
  readonly url: string;
  readonly model: string;
  /** Name of the adapter; null where there is none. */
  readonly adapter: string | null;
  readonly capabilities: ReadonlySet<Capability>;
  readonly sizes: SubjectSizes;
  readonly events: SubjectEvents | null;
  /** From a start on it surely loads for so long, ms. */
  readonly loadsForMs: number;
  /** How long a start may take at most, ms. */
  readonly startLimitMs: number;
  readonly controls: SubjectControls;
}
