// The manifests: they build, have no field that Kubernetes does not know, and
// fit each other and the binaries. Run by `./weft manifests`.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {test} from 'node:test';

import {OVERLAYS, render} from './overlays.mjs';
import {BINARIES, hasCommand, KUSTOMIZE, probe, run} from './packages.mjs';
import {containersOf, flagsOf, podTemplatesOf, probesOf, violationsOf} from './rules.mjs';
import {fieldPathsOf, problemsOf} from './schema.mjs';

const skip = hasCommand('kubectl') ? false : 'kubectl is not installed';

for (const overlay of skip ? [] : OVERLAYS) {
  test(`${overlay} builds, and every field is known`, () => {
    const objects = render(overlay);
    assert.ok(objects.length > 10);
    assert.deepEqual(objects.flatMap(problemsOf), []);
  });

  test(`${overlay} fits together`, () => {
    assert.deepEqual(violationsOf(render(overlay)), []);
  });
}

test('all overlays and examples are there', {skip}, () => {
  assert.deepEqual(OVERLAYS.toSorted(), [
    'examples/indexed-job', 'examples/jobset', 'examples/kubeflow-trainer',
    'overlays/cpu-dev', 'overlays/multi-node', 'overlays/single-node-8gpu'
  ]);
});

const at = (object, path) => path.reduce((node, key) => node[key], object);

// The same object with the field at `path` misspelt.
function misspelt(object, path) {
  const copy = structuredClone(object);
  const parent = at(copy, path.slice(0, -1));
  const key = path.at(-1);
  parent[`${key}z`] = parent[key];
  delete parent[key];
  return copy;
}

test('a misspelt field is found, in every kind and wherever it is', {skip}, () => {
  const kinds = new Set();
  for (const object of OVERLAYS.flatMap(render)) {
    if (kinds.has(object.kind)) continue;
    kinds.add(object.kind);
    const paths =
        fieldPathsOf(object).filter((path) => !['apiVersion', 'kind'].includes(path[0]));
    assert.ok(paths.length > 0, object.kind);
    for (const path of paths) {
      assert.notDeepEqual(
          problemsOf(misspelt(object, path)), [],
          `${object.kind}: ${path.join('.')}z`);
    }
  }
  assert.ok(kinds.size >= 12, `only ${[...kinds]}`);
});

test('a value of the wrong type is found', {skip}, () => {
  const [worker] = workers(render('overlays/cpu-dev'));
  for (const [path, value] of [
         [['spec', 'replicas'], 'two'],
         [['spec', 'template', 'spec', 'containers'], {}],
         [['spec', 'template', 'spec', 'containers', 0, 'args', 0], 7],
         [['spec', 'template', 'metadata', 'labels', 'tier'], 7],
         [['spec', 'template', 'spec', 'automountServiceAccountToken'], 'no'],
         [['spec', 'template', 'spec', 'terminationGracePeriodSeconds'], 1.5],
  ]) {
    const copy = structuredClone(worker);
    at(copy, path.slice(0, -1))[path.at(-1)] = value;
    assert.equal(problemsOf(copy).length, 1, path.join('.'));
  }
});

const workers = (objects) => objects.filter(
    (o) => o.kind === 'StatefulSet' && o.metadata.name === 'weft-worker');

// Each breaks one thing of an overlay, given its worker's pod and container.
const BREAKS = {
  'its selector finds no pod': (c) =>
      c.service.spec.selector['app.kubernetes.io/component'] = 'wroker',
  'no port helth in its pods': (c) => c.service.spec.ports[0].targetPort = 'helth',
  'port 7081 is 7080 in its pods': (c) => c.service.spec.ports[0].port = 7081,
  'its selector is not its pods\'': (c) =>
      c.worker.spec.template.metadata.labels['app.kubernetes.io/component'] = 'x',
  'no Service weft-wroker': (c) => c.worker.spec.serviceName = 'weft-wroker',
  'port 9999 is not declared': (c) =>
      c.container.args.push('--http_address=0.0.0.0:9999'),
  'nothing listens on 9100': (c) =>
      c.container.ports.push({name: 'x', containerPort: 9100}),
  'readinessProbe asks 7070': (c) => c.container.readinessProbe.grpc.port = 7070,
  'livenessProbe asks for live': (c) =>
      c.container.livenessProbe.grpc.service = 'live',
  'startupProbe asks undefined': (c) =>
      c.container.startupProbe = {tcpSocket: {port: 7080}},
  'nobody is coordinator:7070': (c) =>
      c.container.args.push('--coordinator=coordinator:7070'),
  'requests and limits differ': (c) => c.container.resources.requests.cpu = '2',
  'may run as root': (c) => delete c.spec.securityContext.runAsNonRoot,
  'has no user': (c) => delete c.spec.securityContext.runAsUser,
  'has no seccomp profile': (c) => delete c.spec.securityContext.seccompProfile,
  'hostNetwork': (c) => c.spec.hostNetwork = true,
  'gets a token': (c) => delete c.spec.automountServiceAccountToken,
  'volume logs is of a kind not allowed': (c) =>
      c.spec.volumes.push({name: 'logs', hostPath: {path: '/var/log'}}),
  'may escalate privileges': (c) =>
      delete c.container.securityContext.allowPrivilegeEscalation,
  'is privileged': (c) => c.container.securityContext.privileged = true,
  'its root can be written': (c) =>
      delete c.container.securityContext.readOnlyRootFilesystem,
  'keeps capabilities': (c) =>
      c.container.securityContext.capabilities.add = ['IPC_LOCK'],
  'takes port 80 of the host': (c) => c.container.ports[0].hostPort = 80,
  'take longer than the pod\'s grace': (c) => c.container.args.push('--grace=54s'),
  'no volume dta': (c) => c.container.volumeMounts[1].name = 'dta',
  'no ServiceAccount weft': (c) => c.spec.serviceAccountName = 'weft',
  'no claim weft-dta': (c) =>
      c.spec.volumes[1].persistentVolumeClaim.claimName = 'weft-dta',
  'no ConfigMap weft': (c) =>
      c.spec.volumes.push({name: 'c', configMap: {name: 'weft'}}),
  'is in namespace other': (c) => c.worker.metadata.namespace = 'other',
  'does not enforce the restricted profile': (c) =>
      delete c.namespace.metadata.labels['pod-security.kubernetes.io/enforce'],
  'no NetworkPolicy denies': (c) => c.deny.spec.policyTypes.pop(),
  'a peer finds no pod': (c) => {
    const [{podSelector}] = c.policy.spec.ingress[0].from;
    podSelector.matchLabels['app.kubernetes.io/component'] = 'wroker';
  },
  'no pod has a port gprc': (c) =>
      c.policy.spec.ingress[0].ports[0].port = 'gprc',
  'no pod has a port metrics-9': (c) =>
      c.monitor.spec.podMetricsEndpoints[0].port = 'metrics-9',
};

for (const [message, spoil] of Object.entries(BREAKS)) {
  test(`what does not fit is found: ${message}`, {skip}, () => {
    const objects = render('overlays/multi-node');
    const named = (kind, name) => objects.find(
        (o) => o.kind === kind && o.metadata.name === name);
    const worker = named('StatefulSet', 'weft-worker');
    const {spec} = worker.spec.template;
    spoil({
      worker,
      spec,
      container: spec.containers[0],
      service: named('Service', 'weft-worker'),
      namespace: named('Namespace', 'weft'),
      deny: named('NetworkPolicy', 'weft-default-deny'),
      policy: named('NetworkPolicy', 'weft-coordinator'),
      monitor: named('PodMonitor', 'weft-worker'),
    });
    const found = violationsOf(objects);
    assert.ok(found.some((line) => line.includes(message)), found.join('\n'));
  });
}

// Containers of all overlays whose command is this binary.
function containersOfBinary(binary) {
  return OVERLAYS.flatMap(render).flatMap((o) => podTemplatesOf([o]))
      .flatMap(({spec}) => containersOf(spec))
      .filter(({command}) => command[0] === `/opt/weft/bin/${binary}`);
}

const BUILT = {
  coordinator: join(BINARIES, 'coordinator/coordinator'),
  worker: join(BINARIES, 'worker/worker'),
};

for (const binary of skip ? [] : Object.keys(BUILT)) {
  test(`the flags of the manifests are the ${binary}'s`, () => {
    const help = run(BUILT[binary], ['--help']);
    const known = new Set(
        [...help.matchAll(/^ {2}--(\w+) {2}/gm)].map(([, flag]) => flag));
    const containers = containersOfBinary(binary);
    assert.ok(containers.length > 0);
    for (const flag of containers.flatMap((c) => Object.keys(flagsOf(c)))) {
      assert.ok(known.has(flag), `--${flag}`);
    }
  });
}

// Starts a daemon on free ports; returns where its health service is.
function start(binary, args, addressIn, t) {
  const folder = mkdtempSync(join(tmpdir(), 'weft-'));
  const child = spawn(BUILT[binary], args(folder), {cwd: folder});
  t.after(() => {
    child.kill('SIGKILL');
    rmSync(folder, {recursive: true, force: true});
  });
  return new Promise((found, failed) => {
    let log = '';
    child.stderr.on('data', (data) => {
      log += data;
      const match = log.match(addressIn);
      if (match) found(match[1]);
    });
    child.on('exit', (code) => failed(new Error(`${binary}: ${code}\n${log}`)));
  });
}

test('the names that probes ask for exist in the binaries', {skip}, async (t) => {
  const addresses = {
    coordinator: await start(
        'coordinator',
        (folder) =>
            ['--listen_address=127.0.0.1:0', '--http_address=',
             `--state_dir=${folder}`, `--artifacts_dir=${folder}`],
        / grpc=(\S+)/, t),
    worker: await start(
        'worker',
        () => ['--coordinator=127.0.0.1:1', '--http_address=',
               '--health_address=127.0.0.1:0'],
        / health=(\S+)/, t),
  };
  for (const [binary, address] of Object.entries(addresses)) {
    const services = new Set(containersOfBinary(binary).flatMap(
        (c) => probesOf(c).map(([, grpc]) => grpc.service)));
    assert.ok(services.size >= 3);
    for (const service of services) {
      assert.match(await probe(address, service, 10), /^(NOT_)?SERVING$/, service);
    }
    assert.equal(await probe(address, 'no-such', 10), 'NOT_FOUND');
  }
});

test('the examples submit a legal job', {skip}, () => {
  for (const example of OVERLAYS.filter((o) => o.startsWith('examples/'))) {
    const config = render(example).find((o) => o.kind === 'ConfigMap');
    assert.equal(
        config.data['job.yaml'],
        readFileSync(join(KUSTOMIZE, example, 'job.yaml'), 'utf8'));
    run(join(BINARIES, 'client/weftctl'),
        ['plan', '-f', join(KUSTOMIZE, example, 'job.yaml')],
        {stdio: ['ignore', 'ignore', 'pipe']});
  }
});
