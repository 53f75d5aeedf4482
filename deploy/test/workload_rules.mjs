// What must hold of the objects that make pods, and of those that count them.
import {
  binaryOf, COMPONENT, containersOf, flagsOf, isDaemon, isHeadless, matches,
  serves
} from './objects.mjs';

const runs = (spec, binary) =>
    containersOf(spec).some((container) => binaryOf(container) === binary);

// A workload's selector is among its own pods' labels, and its pods have names.
function* statefulSets(objects) {
  for (const {spec, kind, metadata} of objects) {
    if (kind !== 'StatefulSet') continue;
    const where = `StatefulSet ${metadata.name}`;
    const {labels} = spec.template.metadata;
    if (!matches(spec.selector, labels)) {
      yield `${where}: its selector is not its pods'`;
    }
    const service = objects.find(
        (o) => o.kind === 'Service' && o.metadata.name === spec.serviceName);
    if (service === undefined) {
      yield `${where}: no Service ${spec.serviceName}`;
    } else if (
        !isHeadless(service) || !service.spec.publishNotReadyAddresses ||
        !serves(service, labels)) {
      yield `${where}: Service ${spec.serviceName} gives its pods no names`;
    }
    const pod = spec.template.spec;
    if (runs(pod, 'coordinator') && spec.replicas > 1) {
      yield `${where}: more than one coordinator`;
    }
    if (runs(pod, 'worker')) yield* workers(where, spec);
  }
}

function* workers(where, spec) {
  if (spec.podManagementPolicy !== 'Parallel') {
    yield `${where}: its pods wait for each other`;
  }
  if (spec.updateStrategy?.type !== 'OnDelete') {
    yield `${where}: a changed manifest ends jobs`;
  }
}

// A pod that cannot start would hold its nodes for ever.
function* deadlines(objects) {
  const visit = function*(where, node) {
    if (node === null || typeof node !== 'object') return;
    const isJob = node.template?.spec?.containers && node.backoffLimit !== undefined;
    if (isJob && !(node.activeDeadlineSeconds > 0)) {
      yield `${where}: a Job has no deadline`;
    }
    for (const child of Object.values(node)) yield* visit(where, child);
  };
  for (const object of objects) {
    yield* visit(`${object.kind} ${object.metadata.name}`, object);
  }
}

// No pod is evicted that works. Percentages, and maxUnavailable, need an owner
// with a scale, which a Job has not.
function* budgets(objects, pods) {
  for (const {kind, metadata, spec} of objects) {
    if (kind !== 'PodDisruptionBudget') continue;
    const where = `PodDisruptionBudget ${metadata.name}`;
    const chosen = pods.filter((pod) => matches(spec.selector, pod.labels));
    const hasScale = chosen.every(({owner}) => owner.kind === 'StatefulSet');
    if (!hasScale && !Number.isInteger(spec.minAvailable)) {
      yield `${where}: its pods have no scale, it needs minAvailable, a number`;
    }
    const count = chosen.reduce((sum, pod) => sum + countOf(pod, objects), 0);
    if (spec.maxUnavailable !== 0 && !(spec.minAvailable >= count)) {
      yield `${where}: lets a pod be evicted that works`;
    }
  }
}

// How many pods are made of a template.
function countOf({owner, spec: pod}, objects) {
  if (owner.kind === 'StatefulSet') return owner.spec.replicas;
  if (owner.kind === 'ClusterTrainingRuntime') {
    return objects.find((o) => o.kind === 'TrainJob').spec.trainer.numNodes;
  }
  const jobs = owner.kind === 'Job' ?
      [owner.spec] :
      owner.spec.replicatedJobs.map(({template}) => template.spec);
  return jobs.find((job) => job.template.spec === pod).completions;
}

// What daemons of one binary may differ in, where others than the base's
// StatefulSet bring them.
function comparable(container) {
  const {name, restartPolicy, args, ...rest} = container;
  const {coordinator, ...flags} = flagsOf({args});
  return {...rest, flags};
}

const POD_FIELDS = [
  'serviceAccountName', 'terminationGracePeriodSeconds', 'securityContext',
  'tolerations'
];

const sorted = (value) => value === null || typeof value !== 'object' ? value :
    Array.isArray(value) ? value.map(sorted) :
    Object.fromEntries(Object.keys(value).sort().map((k) => [k, sorted(value[k])]));

const isSame = (a, b) => JSON.stringify(sorted(a ?? null)) ===
    JSON.stringify(sorted(b ?? null));

// Daemons are what those of the StatefulSets are.
function* copies(pods) {
  const sets = pods.filter(({owner}) => owner.kind === 'StatefulSet');
  for (const {owner, spec} of pods) {
    for (const container of containersOf(spec).filter(isDaemon)) {
      const base = sets.find((pod) => runs(pod.spec, binaryOf(container)));
      const where = `${owner.kind} ${owner.metadata.name}, container ${container.name}`;
      const own = comparable(container);
      const other = comparable(
          containersOf(base.spec).find((c) => binaryOf(c) === binaryOf(container)));
      for (const field of new Set([...Object.keys(own), ...Object.keys(other)])) {
        if (!isSame(own[field], other[field])) {
          yield `${where}: ${field} differ from the StatefulSet's`;
        }
      }
      for (const field of POD_FIELDS.filter((f) => !isSame(spec[f], base.spec[f]))) {
        yield `${where}: its pod's ${field} differ from the StatefulSet's`;
      }
    }
  }
}

// Workers write to the volume that the coordinator has under the same path.
function* artifacts(pods) {
  const sourceAt = (spec, container, path) => {
    const name =
        container.volumeMounts?.find((m) => m.mountPath === path && !m.readOnly)?.name;
    return spec.volumes?.find((v) => v.name === name)?.persistentVolumeClaim;
  };
  const daemons = pods.flatMap(
      ({owner, spec}) =>
          containersOf(spec).map((container) => ({owner, spec, container})));
  const [coordinator] =
      daemons.filter(({container}) => binaryOf(container) === 'coordinator');
  const {artifacts_dir: path} = flagsOf(coordinator.container);
  const expected = sourceAt(coordinator.spec, coordinator.container, path);
  for (const {owner, spec, container} of daemons) {
    if (binaryOf(container) === 'worker' &&
        !isSame(sourceAt(spec, container, path), expected)) {
      yield `${owner.kind} ${owner.metadata.name}, container ${
          container.name}: ${path} is not the coordinator's`;
    }
  }
}

export function workloadViolations(objects, pods) {
  return [
    ...statefulSets(objects), ...deadlines(objects), ...budgets(objects, pods),
    ...copies(pods), ...artifacts(pods)
  ];
}
