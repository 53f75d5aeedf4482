// The overlays and examples, as `kubectl kustomize` renders them.
import {readdirSync} from 'node:fs';
import {join} from 'node:path';

import {KUSTOMIZE, run, yaml} from './packages.mjs';

export const OVERLAYS = ['overlays', 'examples'].flatMap(
    (folder) => readdirSync(join(KUSTOMIZE, folder))
                    .map((name) => `${folder}/${name}`));

export function build(folder) {
  return yaml.loadAll(run('kubectl', ['kustomize', folder]));
}

const rendered = new Map();

// A fresh copy each time, so that a test may change it.
export function render(overlay) {
  if (!rendered.has(overlay)) {
    rendered.set(overlay, build(join(KUSTOMIZE, overlay)));
  }
  return structuredClone(rendered.get(overlay));
}
