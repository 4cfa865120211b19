// The kinds of engine that can be simulated.

import type { EngineKind } from './options.ts';
import type { SurfaceFactory } from './surface.ts';
import { llamacppSurface } from './llamacpp/surface.ts';
import { sglangSurface } from './sglang/surface.ts';
import { tgiSurface } from './tgi/surface.ts';
import { vllmSurface } from './vllm/surface.ts';

export const SURFACES: Readonly<Record<EngineKind, SurfaceFactory>> = {
  vllm: vllmSurface,
  tgi: tgiSurface,
  sglang: sglangSurface,
  llamacpp: llamacppSurface,
};
