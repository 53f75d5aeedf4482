// A typo in a manifest is found by schema.mjs: in a field, in a word of which
// there are few, in a type. Run by `./weft manifests`.
import assert from 'node:assert/strict';
import {test} from 'node:test';

import {OVERLAYS, render} from './overlays.mjs';
import {fieldPathsOf, problemsOf} from './schema.mjs';

const at = (object, path) => path.reduce((node, key) => node[key], object);

// The same object with what is at `path` changed: change(parent, key).
function changed(object, path, change) {
  const copy = structuredClone(object);
  change(at(copy, path.slice(0, -1)), path.at(-1));
  return copy;
}

// One object of each kind.
function kinds() {
  const found = new Map(OVERLAYS.flatMap(render).map((o) => [o.kind, o]));
  assert.ok(found.size >= 12, `only ${[...found.keys()]}`);
  return [...found.values()];
}

test('a misspelt field is found, in every kind and wherever it is', () => {
  const misspell = (parent, key) => {
    parent[`${key}z`] = parent[key];
    delete parent[key];
  };
  for (const object of kinds()) {
    const paths = fieldPathsOf(object).filter(
        ([first]) => !['apiVersion', 'kind'].includes(first));
    assert.ok(paths.length > 0, object.kind);
    for (const path of paths) {
      assert.notDeepEqual(
          problemsOf(changed(object, path, misspell)), [],
          `${object.kind}: ${path.join('.')}z`);
    }
  }
});

test('a misspelt kind or version is found', () => {
  for (const object of kinds()) {
    for (const field of ['apiVersion', 'kind']) {
      const spoilt = changed(object, [field], (parent, key) => parent[key] += 'z');
      assert.match(problemsOf(spoilt)[0], /is of an unknown kind/);
    }
  }
});

// Paths of strings and of items of lists that look like one of a few words.
function wordsOf(object) {
  const paths = fieldPathsOf(object).flatMap((path) => {
    const value = at(object, path);
    return Array.isArray(value) ? value.map((_, i) => [...path, i]) : [path];
  });
  return paths.filter(
      (path) => path[0] === 'spec' &&
          /^([A-Z][a-z]+)+$|^[A-Z]{3,}$/.test(at(object, path)));
}

test('a misspelt word is found wherever there are few', () => {
  const words = new Set();
  for (const object of OVERLAYS.flatMap(render)) {
    for (const path of wordsOf(object)) {
      // Names of alerts are free.
      if (path.at(-1) === 'alert') continue;
      words.add(at(object, path));
      const spoilt = changed(object, path, (parent, key) => parent[key] += 'z');
      assert.match(
          problemsOf(spoilt).join(), /is none of/,
          `${object.kind}: ${path.join('.')}`);
    }
  }
  const some = ['Ingress', 'ReadWriteMany', 'None', 'Parallel', 'Memory', 'TCP'];
  for (const word of some) {
    assert.ok(words.has(word), word);
  }
});

test('a value of the wrong type is found', () => {
  const worker = render('overlays/cpu-dev')
                     .find((o) => o.kind === 'StatefulSet' &&
                               o.metadata.name === 'weft-worker');
  for (const [path, value] of [
         [['spec', 'replicas'], 'two'],
         [['spec', 'template', 'spec', 'containers'], {}],
         [['spec', 'template', 'spec', 'containers', 0, 'args', 0], 7],
         [['spec', 'template', 'metadata', 'labels', 'tier'], 7],
         [['spec', 'template', 'spec', 'automountServiceAccountToken'], 'no'],
         [['spec', 'template', 'spec', 'terminationGracePeriodSeconds'], 1.5],
  ]) {
    const spoilt =
        changed(worker, path, (parent, key) => parent[key] = value);
    assert.equal(problemsOf(spoilt).length, 1, path.join('.'));
  }
});
