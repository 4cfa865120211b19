// The LoRA adapters of one process, and the endpoints that load and unload them.

import { errorReply, type Reply } from '../reply.ts';
import type { LoraModule } from './options.ts';
import { invalid, missing, textOf, type JsonObject } from './validation.ts';

const ADAPTERS_MAX = 1_000;

export class Adapters {
  readonly #baseModel: string;
  readonly #loaded = new Map<string, LoraModule>();
  /** Numbers are kept when an adapter goes. */
  readonly #ids = new Map<string, number>();

  constructor(baseModel: string, modules: readonly LoraModule[]) {
    this.#baseModel = baseModel;
    for (const module of modules) this.#add(module);
  }

  get modules(): readonly LoraModule[] {
    return [...this.#loaded.values()];
  }

  get names(): readonly string[] {
    return [...this.#loaded.keys()];
  }

  /** From 1, as KV events have it. */
  idOf(name: string): number {
    return this.#ids.get(name) ?? 0;
  }

  load(body: JsonObject): Reply {
    const problems = ['lora_name', 'lora_path']
      .filter((member) => body[member] === undefined)
      .map((member) => missing(`body.${member}`, body));
    if (problems.length > 0) return invalid(problems);
    const name = textOf(body['lora_name']) ?? '';
    const path = textOf(body['lora_path']) ?? '';
    if (name === '' || path === '') {
      return userFault("Both 'lora_name' and 'lora_path' must be provided.");
    }
    if (name === this.#baseModel) {
      return userFault(`The lora adapter '${name}' conflicts with a served base model.`);
    }
    if (this.#loaded.has(name) && body['load_inplace'] !== true) {
      return userFault(
        `The lora adapter '${name}' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.`,
      );
    }
    this.#add({ name, path });
    return success(`Success: LoRA adapter '${name}' added successfully.`);
  }

  unload(body: JsonObject): Reply {
    if (body['lora_name'] === undefined) return invalid([missing('body.lora_name', body)]);
    const name = textOf(body['lora_name']) ?? '';
    if (name === '') {
      return userFault("'lora_name' needs to be provided to unload a LoRA adapter.");
    }
    if (!this.#loaded.delete(name)) {
      return errorReply(404, 'NotFoundError', `The lora adapter '${name}' cannot be found.`);
    }
    return success(`Success: LoRA adapter '${name}' removed successfully.`);
  }

  #add(module: LoraModule): void {
    if (this.#loaded.size >= ADAPTERS_MAX) return;
    this.#loaded.set(module.name, module);
    if (!this.#ids.has(module.name)) this.#ids.set(module.name, this.#ids.size + 1);
  }
}

function userFault(message: string): Reply {
  return errorReply(400, 'InvalidUserInput', message);
}

/** Plain text, and so without a content type. */
function success(text: string): Reply {
  return { status: 200, body: text, contentType: null };
}
