// What a process says of its configuration: which generation it runs, and whether the last change was taken.
// Written by the reload, read by `/status`, `spillway_config_generation` and `spillway_config_last_reload_ok`.

export interface ConfigView {
  /** Grows by one with every change that was taken; 1 at start. */
  readonly generation: number;
  /** False from a change that could not be taken until one that could. */
  readonly lastReloadOk: boolean;
  /** All problems of the change that could not be taken; null when `lastReloadOk`. */
  readonly lastError: string | null;
  /** Fields whose new values wait for a restart, as paths of `fleet.yaml`. */
  readonly restartFields: readonly string[];
}

export class ConfigState {
  #view: ConfigView = {
    generation: 1,
    lastReloadOk: true,
    lastError: null,
    restartFields: [],
  };

  readonly view = (): ConfigView => this.#view;

  /** A change was taken; `restartFields` differ from what the process started with. */
  taken(restartFields: readonly string[]): ConfigView {
    this.#view = {
      generation: this.#view.generation + 1,
      lastReloadOk: true,
      lastError: null,
      restartFields,
    };
    return this.#view;
  }

  /** A change was refused: what runs stays. */
  refused(error: string): ConfigView {
    this.#view = { ...this.#view, lastReloadOk: false, lastError: error };
    return this.#view;
  }
}
