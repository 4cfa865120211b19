// `npm run prove -- NAME… [--quick] [--json]`: the longer proofs, by name.

import { cpus } from 'node:os';
import { VERSION } from '../shared/runtime/version.ts';
import { GLOBAL } from '../sim/proofs/global.ts';
import { MANY_ROUTERS } from '../sim/proofs/many-routers.ts';
import { OVERLOAD } from '../sim/proofs/overload.ts';
import type { Proof } from '../sim/proofs/proof.ts';
import { SCALE_PROOF } from '../sim/proofs/scale.ts';
import { WORKING_SET } from '../sim/proofs/working-set.ts';
import { proveCommand } from './prove-command.ts';

const PROOFS: readonly Proof[] = [MANY_ROUTERS, OVERLOAD, WORKING_SET, SCALE_PROOF, GLOBAL];

process.exitCode = proveCommand(process.argv.slice(2), PROOFS, {
  out: (line) => console.log(line),
  err: (line) => console.error(line),
  version: VERSION,
  machine: `${cpus().length} × ${cpus()[0]?.model.trim() ?? 'unknown'}, Node ${process.version}`,
  nowMs: () => performance.now(),
});
