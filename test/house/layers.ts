// Which folder may import what: STYLE's table as data. The first rule whose pattern matches a file is its layer; a
// file without a layer is an error, so that a new folder is thought about before it grows.

export interface Layer {
  readonly name: string;
  /** Files of the layer, as paths from the root. */
  readonly files: RegExp;
  /** Files that it may import. Its own layer is always allowed. */
  readonly imports: readonly RegExp[];
  /** Packages that it may import; `all` = any. `node:` modules are named in full. */
  readonly packages: readonly string[] | 'all';
}

const PURE_SHARED = /^shared\/(model|lib|ports|errors\.ts)/;
const SHARED = /^shared\//;
/** Types alone: the words of the link, and of what happens to a core. */
const WORDS = /^shared\/protocol\/((region|sibling)-)?(messages|limits)\.ts$/;
const HASHING = ['xxhash-wasm', 'node:crypto'];

export const LAYERS: readonly Layer[] = [
  {
    name: 'tests',
    files: /\.test\.ts$|^test\//,
    imports: [/^/],
    packages: 'all',
  },
  {
    name: 'pure shared',
    files: PURE_SHARED,
    imports: [PURE_SHARED],
    packages: HASHING,
  },
  {
    name: 'protocol',
    files: /^shared\/protocol\//,
    imports: [PURE_SHARED],
    packages: ['zod', 'msgpackr'],
  },
  {
    name: 'configuration',
    files: /^shared\/config\//,
    imports: [PURE_SHARED, /^shared\/runtime\/timers\.ts$/],
    packages: ['zod', 'yaml', 'node:fs', 'node:net', 'node:path'],
  },
  { name: 'runtime', files: /^shared\/runtime\//, imports: [SHARED], packages: 'all' },
  {
    name: 'router policy',
    files: /^router\/policy\//,
    imports: [PURE_SHARED, WORDS],
    packages: [],
  },
  {
    name: 'agent policy',
    files: /^agent\/policy\//,
    imports: [PURE_SHARED, WORDS, /^agent\/events\.ts$/],
    packages: [],
  },
  {
    name: 'regional core',
    files: /^router\/regional\/(core(-[a-z-]+)?|events)\.ts$/,
    imports: [PURE_SHARED, /^router\/policy\//, WORDS],
    packages: [],
  },
  {
    name: 'global core',
    files: /^router\/global\/(core(-[a-z-]+)?|events)\.ts$/,
    imports: [PURE_SHARED, /^router\/policy\//, WORDS],
    packages: [],
  },
  {
    name: 'agent core',
    files: /^agent\/(core(-[a-z-]+)?|events)\.ts$/,
    imports: [PURE_SHARED, /^agent\/policy\//, WORDS],
    packages: [],
  },
  {
    name: 'gateway',
    files: /^router\/gateway\//,
    imports: [SHARED, /^router\/policy\//],
    packages: 'all',
  },
  {
    name: 'regional shell',
    files: /^router\/regional\//,
    imports: [SHARED, /^router\/(policy|gateway)\//, /^router\/regional\//],
    packages: 'all',
  },
  {
    name: 'global shell',
    files: /^router\/global\//,
    imports: [SHARED, /^router\/(policy|gateway)\//, /^router\/global\//],
    packages: 'all',
  },
  {
    name: 'agent shell',
    files: /^agent\//,
    imports: [SHARED, /^agent\//],
    packages: 'all',
  },
  {
    name: 'simulated engine over HTTP',
    files: /^sim\/engine\/http\//,
    imports: [SHARED, /^sim\/engine\//],
    packages: 'all',
  },
  {
    name: 'simulator',
    files: /^sim\//,
    imports: [
      PURE_SHARED,
      /^shared\/protocol\//,
      /^sim\/(?!engine\/http)/,
      /^router\/policy\//,
      /^agent\/policy\//,
      /^(router\/(regional|global)|agent)\/(core(-[a-z-]+)?|events)\.ts$/,
    ],
    packages: [],
  },
  {
    name: 'process mains',
    files: /^bin\//,
    imports: [
      SHARED,
      /^(agent|router\/(regional|global))\/(start|options)\.ts$/,
      /^router\/regional\/(metrics|workers\/[a-z-]+)\.ts$/,
      /^router\/(gateway\/(tenants|leaving)|policy\/(region-filter|model-grant))\.ts$/,
      /^agent\/look\.ts$/,
      /^sim\/engine\/(http\/(server|flags|flag-values)|profiles)\.ts$/,
    ],
    packages: 'all',
  },
  {
    name: 'generated documents',
    files: /^docs\/generate[a-z-]*\.ts$/,
    imports: [SHARED, /^(agent|router\/[a-z]+)\/(metrics|headers)\.ts$/],
    packages: 'all',
  },
  { name: 'benchmarks', files: /^bench\//, imports: [/^(?!bin\/)/], packages: 'all' },
  { name: 'tool configuration', files: /^[a-z.]+\.config\.ts$/, imports: [], packages: 'all' },
];
