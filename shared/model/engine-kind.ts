// The engines that an agent can stand beside. `generic` is any other server with OpenAI's API: nothing of its load is
// known but what routers sent it.

export const ENGINE_KINDS = ['vllm', 'sglang', 'tgi', 'llamacpp', 'generic'] as const;

export type EngineKind = (typeof ENGINE_KINDS)[number];

/** What people call them. */
export const ENGINE_TITLES: Readonly<Record<EngineKind, string>> = {
  vllm: 'vLLM',
  sglang: 'SGLang',
  tgi: 'TGI',
  llamacpp: 'llama.cpp',
  generic: 'OpenAI-compatible server',
};
