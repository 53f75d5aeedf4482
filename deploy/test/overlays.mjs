// The overlays and examples, as `kubectl kustomize` renders them.
import {readdirSync} from 'node:fs';
import {join} from 'node:path';

import {KUSTOMIZE, run, yaml} from './packages.mjs';

export const OVERLAYS = ['overlays', 'examples'].flatMap(
    (folder) => readdirSync(join(KUSTOMIZE, folder))
                    .map((name) => `${folder}/${name}`));

const rendered = new Map();

// A fresh copy each time, so that a test may change it.
export function render(overlay) {
  if (!rendered.has(overlay)) {
    rendered.set(overlay, run('kubectl', ['kustomize', join(KUSTOMIZE, overlay)]));
  }
  return yaml.loadAll(rendered.get(overlay));
}

