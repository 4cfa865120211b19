// What a simulated vLLM is told beyond what every kind is: its own flags and environment.

/** How a stream ends that runs when SIGTERM comes. */
export const TERM_ENDINGS = ['hang', 'error', 'abort'] as const;
export type TermEnding = (typeof TERM_ENDINGS)[number];

export interface LoraModule {
  readonly name: string;
  readonly path: string;
}

export interface VllmOptions {
  /** `x-request-id` is given back, as `--enable-request-id-headers` has it. */
  readonly requestIdHeaders?: boolean;
  /** Sleep, pause and cache endpoints, as VLLM_SERVER_DEV_MODE=1 has them. */
  readonly devMode?: boolean;
  /** Adapters are served. */
  readonly enableLora?: boolean;
  /** Loaded at the start. */
  readonly loraModules?: readonly LoraModule[];
  /** Adapters may be loaded and unloaded, as VLLM_ALLOW_RUNTIME_LORA_UPDATING=True has it. */
  readonly loraUpdates?: boolean;
  /** `/load` counts, as `--enable-server-load-tracking` has it. Default true. */
  readonly loadTracking?: boolean;
  /** `metrics` in answers, as `--enable-per-request-metrics` has it. */
  readonly perRequestMetrics?: boolean;
  /** Render endpoints, as `--enable-scale-out` has them. */
  readonly scaleOut?: boolean;
  /** Tools may be called, as `--enable-auto-tool-choice --tool-call-parser …` has it. Default true. */
  readonly tools?: boolean;
  /** `--shutdown-timeout`, ms; 0, the default, ends everything at once. */
  readonly shutdownTimeoutMs?: number;
  /** By chance where absent. */
  readonly termEnding?: TermEnding;
}
