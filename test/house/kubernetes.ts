// Reads the manifests of a folder of deploy/k8s as `kubectl kustomize` would, as far as they use it: resources, one level
// of bases, JSON patches, and the namespace and image of the kustomization.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse, parseAllDocuments } from 'yaml';

const ROOT = join(import.meta.dirname, '../../deploy/k8s');

export interface Port {
  readonly name: string;
  readonly containerPort: number;
}

export interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}

export interface Container {
  readonly name: string;
  readonly image: string;
  readonly restartPolicy?: string;
  readonly command?: readonly string[];
  readonly args: readonly string[];
  readonly env: readonly {
    readonly name: string;
    readonly value?: string;
    readonly valueFrom?: {
      readonly secretKeyRef?: { readonly name: string; readonly key: string };
      readonly fieldRef?: { readonly fieldPath: string };
    };
  }[];
  readonly ports: readonly Port[];
  readonly startupProbe?: Probe;
  readonly livenessProbe?: Probe;
  readonly readinessProbe?: Probe;
  readonly lifecycle?: {
    readonly preStop?: {
      readonly sleep?: { readonly seconds: number };
      readonly exec?: { readonly command: readonly string[] };
    };
  };
  readonly resources: { readonly requests: object; readonly limits: Record<string, unknown> };
  readonly securityContext: Record<string, unknown>;
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
}

export interface Labels {
  readonly [name: string]: string;
}

export interface PodSpec {
  readonly serviceAccountName: string;
  readonly automountServiceAccountToken: boolean;
  readonly terminationGracePeriodSeconds: number;
  readonly topologySpreadConstraints: readonly {
    readonly labelSelector: { readonly matchLabels: Labels };
  }[];
  readonly initContainers?: readonly Container[];
  readonly containers: readonly Container[];
  readonly volumes: readonly {
    readonly name: string;
    readonly configMap?: { readonly name: string };
    readonly persistentVolumeClaim?: { readonly claimName: string };
    readonly emptyDir?: { readonly medium?: string; readonly sizeLimit: string };
  }[];
}

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels?: Labels };
  // Of each kind another one; a test names what it reads.
  readonly spec: never;
  readonly stringData?: Record<string, string>;
}

export interface Deployment extends Omit<Manifest, 'spec'> {
  readonly spec: {
    readonly replicas: number;
    readonly selector: { readonly matchLabels: Labels };
    readonly template: { readonly metadata: { readonly labels: Labels }; readonly spec: PodSpec };
  };
}

interface Kustomization {
  readonly namespace?: string;
  readonly resources: readonly string[];
  readonly images?: readonly { readonly name: string; readonly newTag: string }[];
  readonly patches?: readonly {
    readonly target: { readonly kind: string; readonly name: string };
    readonly path: string;
  }[];
  readonly configMapGenerator?: readonly {
    readonly name: string;
    readonly files: readonly string[];
  }[];
}

interface Operation {
  readonly op: string;
  readonly path: string;
  readonly value?: unknown;
}

export function text(file: string): string {
  return readFileSync(join(ROOT, file), 'utf8');
}

export function kustomization(folder: string): Kustomization {
  return parse(text(`${folder}/kustomization.yaml`)) as Kustomization;
}

export function documents(file: string): Manifest[] {
  return parseAllDocuments(text(file)).map((document) => {
    if (document.errors.length > 0) throw new Error(`${file}: ${document.errors.join('; ')}`);
    return document.toJS() as Manifest;
  });
}

/** Everything that the folder stands for. */
export function manifests(folder: string): Manifest[] {
  const { resources, patches = [] } = kustomization(folder);
  const found = resources.flatMap((resource) =>
    resource.endsWith('.yaml')
      ? documents(`${folder}/${resource}`)
      : manifests(join(folder, resource)),
  );
  for (const { target, path } of patches) {
    const meant = found.filter(
      ({ kind, metadata }) => kind === target.kind && metadata.name === target.name,
    );
    if (meant.length !== 1) throw new Error(`${folder}: no ${target.kind} ${target.name}`);
    for (const operation of parse(text(`${folder}/${path}`)) as Operation[]) {
      patch(meant[0], operation);
    }
  }
  return found;
}

/** `add` at the end of a list, `replace` and `remove` of RFC 6902. */
function patch(root: unknown, { op, path, value }: Operation): void {
  const steps = path.split('/').slice(1);
  const last = steps.pop() ?? '';
  let at = root;
  for (const step of steps) at = (at as Record<string, unknown>)[step];
  const holder = at as Record<string, unknown> | unknown[] | undefined;
  if (op === 'add' && last === '-' && Array.isArray(holder)) return void holder.push(value);
  if (holder === undefined || !(last in holder)) throw new Error(`nothing at ${path}`);
  if (op === 'remove' && Array.isArray(holder)) holder.splice(Number(last), 1);
  else if (op === 'replace') (holder as Record<string, unknown>)[last] = value;
  else throw new Error(`a patch that is not read: ${op} ${path}`);
}

export function ofKind(found: readonly Manifest[], kind: string): Manifest[] {
  return found.filter((manifest) => manifest.kind === kind);
}

export function deployments(found: readonly Manifest[]): Deployment[] {
  return ofKind(found, 'Deployment') as unknown as Deployment[];
}

export function containersOf({ spec }: Deployment): Container[] {
  const { initContainers = [], containers } = spec.template.spec;
  return [...initContainers, ...containers];
}

/** Whether a selector picks something with these labels. */
export function picks(selector: Labels, labels: Labels): boolean {
  return Object.entries(selector).every(([name, value]) => labels[name] === value);
}

/** `$(NAME)` as the kubelet writes it out. */
export function expanded(
  words: readonly string[],
  values: Readonly<Record<string, string>>,
): string[] {
  return words.map((word) =>
    word.replaceAll(/\$\((\w+)\)/g, (_, name: string) => {
      const value = values[name];
      if (value === undefined) throw new Error(`$(${name}) stands for nothing`);
      return value;
    }),
  );
}
