// The manifests: they build, have no field that Kubernetes does not know, and
// what they need is said. Run by `./weft manifests`.
import assert from 'node:assert/strict';
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join, relative} from 'node:path';
import {test} from 'node:test';

import {containersOf, podTemplatesOf} from './objects.mjs';
import {build, OVERLAYS, render} from './overlays.mjs';
import {BINARIES, KUSTOMIZE, run, TREE, yaml} from './packages.mjs';
import {violationsOf} from './rules.mjs';
import {fieldPathsOf, problemsOf} from './schema.mjs';
import {featuresOf} from './versions.mjs';

for (const overlay of OVERLAYS) {
  test(`${overlay} builds, and every field is known`, () => {
    const objects = render(overlay);
    assert.ok(objects.length > 10);
    assert.deepEqual(objects.flatMap(problemsOf), []);
  });

  test(`${overlay} fits together`, () => {
    assert.deepEqual(violationsOf(render(overlay)), []);
  });
}

test('all overlays and examples are there', () => {
  for (const name of [
         'examples/indexed-job', 'examples/jobset', 'examples/kubeflow-trainer',
         'overlays/cpu-dev', 'overlays/multi-node', 'overlays/single-node-8gpu'
  ]) {
    // Those of a user may be there too.
    assert.ok(OVERLAYS.includes(name), name);
  }
});

const page = (path) => readFileSync(join(TREE, path), 'utf8');

test('README and runbook name the oldest Kubernetes that has what is used', () => {
  const features = new Map();
  for (const object of OVERLAYS.flatMap(render)) {
    for (const {what, since} of featuresOf(fieldPathsOf(object))) {
      features.set(what, since);
    }
  }
  assert.ok(features.has('native sidecars') && features.has('probes by gRPC'));
  const oldest = Math.max(...features.values());
  for (const path of ['README.md', 'docs/runbook.md']) {
    assert.deepEqual(
        [...page(path).matchAll(/Kubernetes\s+1\.(\d+)/g)].map(
            ([, minor]) => Number(minor)),
        [oldest], path);
  }
});

// The kustomizations that the runbook shows, in its order.
function shownKustomizations() {
  const blocks = page('docs/runbook.md').matchAll(/^ *```yaml\n([^]*?)^ *```$/gm);
  return [...blocks].map(([, text]) => yaml.load(text))
      .filter(({kind}) => kind === 'Kustomization');
}

// Builds one as if it lay among the overlays.
function buildShown(kustomization, t) {
  const folder = mkdtempSync(join(tmpdir(), 'weft-overlay-'));
  t.after(() => rmSync(folder, {recursive: true}));
  const resources = kustomization.resources.map(
      (path) => relative(folder, join(KUSTOMIZE, 'overlays/mine', path)));
  writeFileSync(
      join(folder, 'kustomization.yaml'), yaml.dump({...kustomization, resources}));
  return build(folder);
}

test('the overlay that the runbook shows is one that can be applied', (t) => {
  const [shown] = shownKustomizations();
  const objects = buildShown(shown, t);
  assert.deepEqual([...objects.flatMap(problemsOf), ...violationsOf(objects)], []);
  const set = objects.find(
      (o) => o.kind === 'StatefulSet' && o.metadata.name === 'weft-worker');
  assert.equal(set.spec.replicas, 16);
  assert.equal(set.spec.template.spec.containers[0].image, 'REGISTRY/weft-worker:1.0');
  const monitoring = objects.filter(
      ({apiVersion}) => apiVersion.startsWith('monitoring.coreos.com/'));
  assert.equal(monitoring.length, 3);
  for (const {kind, metadata} of monitoring) {
    assert.equal(metadata.labels.release, 'RELEASE', kind);
  }
  const alerts = objects.find((o) => o.kind === 'PrometheusRule')
                     .spec.groups.flatMap(({rules}) => rules)
                     .filter(({alert}) => alert);
  assert.ok(alerts.length > 0);
  for (const {alert, annotations} of alerts) {
    assert.equal(
        annotations.runbook_url, `https://DOCS/runbook.md#${alert.toLowerCase()}`);
  }
});

test('an overlay on an example names the images of all its pods', (t) => {
  const [{apiVersion, kind, images}] = shownKustomizations();
  for (const example of OVERLAYS.filter((o) => o.startsWith('examples/'))) {
    const resources = [`../../${example}`];
    const objects = buildShown({apiVersion, kind, resources, images}, t);
    for (const {owner, spec} of podTemplatesOf(objects)) {
      for (const {name, image} of containersOf(spec)) {
        assert.match(
            image, /^REGISTRY\/weft-(coordinator|worker):1\.0$/,
            `${example}: ${owner.kind}, container ${name}`);
      }
    }
  }
});

test('what the runbook waits for may take as long as an image is pulled', () => {
  const commands = page('docs/runbook.md').replaceAll('\\\n', ' ')
                       .match(/^ *kubectl .*\b(wait|rollout status) .*$/gm);
  assert.ok(commands.length >= 2);
  for (const command of commands) assert.match(command, /--timeout=\d+m\b/);
});

test('the examples submit a legal job', () => {
  const path = join(KUSTOMIZE, 'components/run/job.yaml');
  for (const example of OVERLAYS.filter((o) => o.startsWith('examples/'))) {
    const config = render(example).find((o) => o.kind === 'ConfigMap');
    assert.equal(config.data['job.yaml'], readFileSync(path, 'utf8'));
  }
  run(join(BINARIES, 'client/weftctl'), ['plan', '-f', path],
      {stdio: ['ignore', 'ignore', 'pipe']});
});
