// Which Spillway this is, for hellos, metrics and `--version`.

import packageJson from '../../package.json' with { type: 'json' };

export const VERSION: string = packageJson.version;
/** As it stands in hello and welcome. */
export const SOFTWARE = `spillway/${VERSION}`;
