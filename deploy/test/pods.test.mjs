// The contract between manifests and binaries: the pods of overlay cpu-dev, run
// as the manifests say, train a job. Run by `./weft manifests`, in namespaces
// that it makes; see node.mjs and pod.mjs for what stands in for a cluster.
import assert from 'node:assert/strict';
import {copyFileSync, readdirSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, test} from 'node:test';
import {setTimeout as pause} from 'node:timers/promises';

import {Node} from './node.mjs';
import {render} from './overlays.mjs';
import {BINARIES, run, TREE} from './packages.mjs';
import {allows} from './policy.mjs';
import {childrenOf, connectionsOf, statusOf} from './proc.mjs';

const USER = '10001';

let node;
let coordinator;
let workers;

const JOB = {
  'model.num_layers': 2,
  'model.hidden_size': 64,
  'model.moe.expert_hidden_size': 64,
  'model.moe.shared_expert_hidden_size': 64,
  'model.attention.head_dim': 16,
  'data.prefix': '/var/lib/weft/data/text',
  'data.validation_fraction': 0,
  'batch.global_batch': 32,
  'steps': 5,
  'optimizer.warmup_steps': 1,
  'eval.batches': 0,
  'output.trace_step': 0,
};

// Connections between pods that were seen while the job ran.
const flows = new Map();

function watchFlows() {
  return setInterval(() => {
    for (const flow of connectionsOf(all())) {
      flows.set(`${flow.from.name} ${flow.to.name} ${flow.port}`, flow);
    }
  }, 100);
}

// A dataset in the volume that the workers read.
function prepareData(folder) {
  const text = join(node.folder, 'text.txt');
  writeFileSync(text, run('cat', ['README.md', 'CONTRIBUTING.md'], {cwd: TREE}));
  run(join(BINARIES, 'client/weftctl'),
      ['data', 'prepare', '--input', text, '--output', join(folder, 'text'),
       '--tokenizer', 'byte']);
}

before(async () => {
  const objects = render('overlays/cpu-dev');
  node = new Node(objects, {
    'weft-coordinator': process.env.WEFT_COORDINATOR_ROOT,
    'weft-worker': process.env.WEFT_WORKER_ROOT,
  });
  [coordinator] = node.addPods('weft-coordinator');
  workers = node.addPods('weft-worker');
  prepareData(node.volume('weft-data', Number(USER)));
});

after(() => {
  node?.remove();
});

const all = () => [coordinator, ...workers];

// Asks until it is true, or for too long; the last answer.
async function becomesTrue(isTrue) {
  const deadline = Date.now() + 60000;
  for (;;) {
    const answer = await isTrue();
    if (answer || Date.now() >= deadline) return answer;
    await pause(200);
  }
}

// With the logs, for they go with the pods.
function assertServing(answer, pod) {
  assert.equal(answer, 'SERVING', `${pod.name}: ${answer}\n${pod.log}`);
}

test('workers start, and are alive but not ready without a coordinator', async () => {
  for (const worker of workers) await worker.start();
  for (const worker of workers) {
    assertServing(await worker.awaitServing('startupProbe'), worker);
    assertServing(await worker.probe('livenessProbe'), worker);
    assert.equal(await worker.probe('readinessProbe'), 'NOT_SERVING');
  }
});

test('all are ready once the coordinator is there', async () => {
  await coordinator.start();
  assertServing(await coordinator.awaitServing('startupProbe'), coordinator);
  for (const pod of all()) {
    assertServing(await pod.awaitServing('readinessProbe', 60), pod);
    assertServing(await pod.probe('livenessProbe'), pod);
  }
});

test('each is PID 1 under its user, without capabilities', () => {
  for (const pod of all()) {
    for (const {pid} of [{pid: pod.pid}, ...childrenOf(pod.pid)]) {
      const status = statusOf(pid);
      assert.equal(status.Uid, [USER, USER, USER, USER].join('\t'), pod.name);
      assert.equal(status.Gid, [USER, USER, USER, USER].join('\t'), pod.name);
      for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']) {
        assert.match(status[set], /^0+$/, `${pod.name}: ${set}`);
      }
      assert.equal(status.NoNewPrivs, '1', pod.name);
    }
    assert.equal(statusOf(pod.pid).NSpid.split('\t').at(-1), '1', pod.name);
  }
  for (const worker of workers) assert.equal(childrenOf(worker.pid).length, 2);
});

test('roots are read-only, and so are the workers\' data', async () => {
  for (const pod of all()) {
    const {stderr} = await pod.exec(['touch', '/opt/weft/x']);
    assert.match(stderr, /Read-only file system/, pod.name);
  }
  const {stderr} = await workers[0].exec(['touch', '/var/lib/weft/data/x']);
  assert.match(stderr, /Read-only file system/);
});

test('a job over both pods runs to its end', async () => {
  copyFileSync(
      join(TREE, 'examples/moe_text.yaml'),
      join(node.volume('weft-artifacts', Number(USER)), 'job.yaml'));
  const before = workers.map((worker) => worker.sentBytes());
  const weftctl = ['/opt/weft/bin/weftctl', '--coordinator=weft-coordinator:7070'];
  const watching = watchFlows();
  const submitted = await coordinator.exec([
    ...weftctl, 'submit', '--file=/var/lib/weft/artifacts/job.yaml', '--wait',
    ...Object.entries(JOB).map(([field, value]) => `--set=${field}=${value}`)
  ]);
  clearInterval(watching);
  assert.equal(
      submitted.status, 0,
      submitted.stdout + submitted.stderr + all().map((p) => p.log).join('\n'));
  const {jobs} = JSON.parse(
      (await coordinator.exec([...weftctl, 'get', 'jobs', '-o', 'json'])).stdout);
  assert.deepEqual(jobs.map((job) => job.state), ['JOB_STATE_SUCCEEDED']);
  const parameters = readdirSync(join(
      node.volume('weft-artifacts', Number(USER)), jobs[0].id, 'parameters'));
  assert.equal(parameters.length, 4);
  // All-to-alls of the experts crossed the bridge.
  workers.forEach((worker, i) => {
    const sent = worker.sentBytes() - before[i];
    assert.ok(sent > 1 << 20, `${worker.name} sent ${sent} bytes`);
  });
});

test('what the pods said to each other is what NetworkPolicies allow', () => {
  const policies = node.objects.filter((o) => o.kind === 'NetworkPolicy');
  const kinds = new Set();
  for (const {from, to, port} of flows.values()) {
    assert.ok(
        allows(policies, from, to, port), `${from.name} to ${to.name}:${port}`);
    kinds.add(`${from.set.metadata.name} to ${to.set.metadata.name}`);
  }
  assert.deepEqual([...kinds].toSorted(), [
    'weft-worker to weft-coordinator', 'weft-worker to weft-worker'
  ]);
  const [worker] = workers;
  for (const [from, to, port] of [
         [coordinator, worker, 7080], [worker, coordinator, 7071],
         [worker, workers[1], 80]]) {
    assert.ok(!allows(policies, from, to, port), `${from.name} to ${port}`);
  }
});

test('a dead child of a pod is replaced, and the pod ready again', async () => {
  const [worker] = workers;
  const children = childrenOf(worker.pid).map(({pid}) => pid);
  process.kill(children[1], 'SIGKILL');
  const isReplaced = await becomesTrue(() => {
    const now = childrenOf(worker.pid).map(({pid}) => pid);
    return now.length === 2 && now.includes(children[0]) &&
        !now.includes(children[1]);
  });
  assert.ok(isReplaced, worker.log);
  assertServing(await worker.awaitServing('readinessProbe', 60), worker);
});

test('PID 1 reaps what lost its parent', async () => {
  const [worker] = workers;
  const {stdout} = await worker.exec(
      ['sh', '-c', '(sh -c "echo \\$\\$; exec 1>&-; exec sleep 0.1" &)']);
  assert.match(stdout, /^\d+\n$/);
  const path = `/proc/${stdout.trim()}`;
  const isReaped = await becomesTrue(
      async () => (await worker.exec(['test', '-e', path])).status !== 0);
  assert.ok(isReaped, `${path} is still there`);
});

test('SIGTERM ends every pod cleanly within its grace', async () => {
  for (const pod of [...workers, coordinator]) {
    assert.equal(await pod.terminate(), 0, `${pod.name}\n${pod.log}`);
  }
});
