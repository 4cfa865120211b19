// `/v1/models`: the base model, and each adapter with its parent and without a length of its own.

import type { EngineHost } from '../surface.ts';
import type { LoraModule } from './options.ts';

export function modelList(host: EngineHost, adapters: readonly LoraModule[]): object {
  const { options, engines } = host;
  const base = {
    id: options.model,
    root: `/models/${options.model}`,
    parent: null,
    maxModelLen: engines[0]!.model.maxModelLen,
  };
  const others = adapters.map(({ name, path }) => ({
    id: name,
    root: path,
    parent: options.model,
    maxModelLen: null,
  }));
  return { object: 'list', data: [base, ...others].map((model) => entryOf(host, model)) };
}

function entryOf(
  host: EngineHost,
  model: { id: string; root: string; parent: string | null; maxModelLen: number | null },
): object {
  const created = Math.floor(host.runtime.clock.wallMs() / 1000);
  return {
    id: model.id,
    object: 'model',
    created,
    owned_by: 'vllm',
    root: model.root,
    parent: model.parent,
    max_model_len: model.maxModelLen,
    permission: [
      {
        id: `modelperm-${host.hex(16)}`,
        object: 'model_permission',
        created,
        allow_create_engine: false,
        allow_sampling: true,
        allow_logprobs: true,
        allow_search_indices: false,
        allow_view: true,
        allow_fine_tuning: false,
        organization: '*',
        group: null,
        is_blocking: false,
      },
    ],
  };
}
