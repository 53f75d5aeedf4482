// What stands in for a cluster says what a cluster would. Run by `./weft
// manifests`.
import assert from 'node:assert/strict';
import {test} from 'node:test';

import {imageEnvironment} from './image.mjs';
import {hostsOf} from './node.mjs';
import {render} from './overlays.mjs';

function podsOf(objects) {
  return objects.filter((o) => o.kind === 'StatefulSet').map((set, i) => ({
    name: `${set.metadata.name}-0`,
    ip: `10.0.0.${i + 1}`,
    labels: set.spec.template.metadata.labels,
    set,
  }));
}

test('pods have the names that a cluster gives them, and no others', () => {
  const objects = render('overlays/cpu-dev');
  const pods = podsOf(objects);
  const [coordinator, worker] = ['weft-coordinator-0', 'weft-worker-0'].map(
      (name) => pods.find((pod) => pod.name === name));
  const names = (host) =>
      hostsOf(objects, pods, worker).split('\n').map((line) => line.split(' '))
          .filter(([ip]) => ip === host.ip).flatMap(([, ...list]) => list).toSorted();
  assert.deepEqual(names(coordinator), [
    'weft-coordinator', 'weft-coordinator-0.weft-coordinator-pod',
    'weft-coordinator-0.weft-coordinator-pod.weft.svc', 'weft-coordinator-pod',
    'weft-coordinator-pod.weft.svc', 'weft-coordinator.weft.svc'
  ]);
  assert.deepEqual(names(worker), [
    'weft-worker', 'weft-worker-0', 'weft-worker-0.weft-worker',
    'weft-worker-0.weft-worker.weft.svc', 'weft-worker.weft.svc'
  ]);
});

test('images look for libraries where their base does too', () => {
  const onBase = imageEnvironment({LD_LIBRARY_PATH: '/base/lib:/base/lib64'});
  assert.match(
      onBase.LD_LIBRARY_PATH, /^\/opt\/weft\/lib:.*:\/base\/lib:\/base\/lib64$/);
  // Where GPU device plugins put the driver.
  assert.match(onBase.LD_LIBRARY_PATH, /:\/usr\/local\/nvidia\/lib64:/);
  // An empty entry would be the current folder.
  for (const path of imageEnvironment({}).LD_LIBRARY_PATH.split(':')) {
    assert.match(path, /^\/\w/);
  }
});
