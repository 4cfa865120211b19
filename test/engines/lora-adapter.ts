// A LoRA adapter for the tiny model, made at run time: small random weights, in the format that the engine loads
// (safetensors: 8 bytes of header length, a JSON header, the tensors).

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Random } from '../../shared/lib/random.ts';

const RANK = 8;
const LAYERS = 4;
const HIDDEN = 256;
/** Outputs of the adapted projections, as `model/config.json` has them. */
const OUTPUTS = { q_proj: 256, v_proj: 128 } as const;

interface Tensor {
  readonly name: string;
  readonly shape: readonly [number, number];
}

/** Writes the adapter into the folder, which is made. */
export function writeLoraAdapter(folder: string, random: Random): void {
  mkdirSync(folder, { recursive: true });
  const config = {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: 'tiny-llama',
    r: RANK,
    lora_alpha: 2 * RANK,
    lora_dropout: 0,
    bias: 'none',
    target_modules: Object.keys(OUTPUTS),
  };
  writeFileSync(join(folder, 'adapter_config.json'), JSON.stringify(config));
  writeFileSync(join(folder, 'adapter_model.safetensors'), safetensors(tensors(), random));
}

function tensors(): Tensor[] {
  const all: Tensor[] = [];
  for (let layer = 0; layer < LAYERS; layer += 1) {
    for (const [projection, outputs] of Object.entries(OUTPUTS)) {
      const path = `base_model.model.model.layers.${layer}.self_attn.${projection}`;
      all.push({ name: `${path}.lora_A.weight`, shape: [RANK, HIDDEN] });
      all.push({ name: `${path}.lora_B.weight`, shape: [outputs, RANK] });
    }
  }
  return all;
}

function safetensors(all: readonly Tensor[], random: Random): Buffer {
  const header: Record<string, object> = {};
  const parts: Buffer[] = [];
  let offset = 0;
  for (const { name, shape } of all) {
    const values = Float32Array.from({ length: shape[0] * shape[1] }, () => random.next() - 0.5);
    const bytes = Buffer.from(values.buffer);
    header[name] = { dtype: 'F32', shape, data_offsets: [offset, offset + bytes.length] };
    offset += bytes.length;
    parts.push(bytes);
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, ...parts]);
}
