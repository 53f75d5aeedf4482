// What must hold between the objects of one overlay, beyond their types.
import {containerViolations} from './container_rules.mjs';
import {
  COMPONENT, containersOf, isHeadless, matches, podTemplatesOf, portsOf
} from './objects.mjs';
import {networkViolations} from './network_rules.mjs';
import {NAMESPACE} from './policy.mjs';
import {securityViolations} from './security_rules.mjs';
import {workloadViolations} from './workload_rules.mjs';

function selectorOf({kind, spec}) {
  if (kind === 'Service') return {matchLabels: spec.selector};
  if (kind === 'NetworkPolicy') return spec.podSelector;
  return spec?.selector;
}

// Selectors of objects find pods, and Services and monitors the ports they name.
function* selectors(objects, pods) {
  for (const object of objects) {
    const where = `${object.kind} ${object.metadata.name}`;
    const selector = selectorOf(object);
    if (selector === undefined) continue;
    const chosen = pods.filter((pod) => matches(selector, pod.labels));
    const isForClients = selector.matchLabels?.[COMPONENT] === 'client';
    if (chosen.length === 0 && !isForClients) {
      yield `${where}: its selector finds no pod`;
    }
    if (object.kind === 'Service') yield* service(where, object, chosen);
    for (const end of object.spec.podMetricsEndpoints ?? []) {
      if (!chosen.some((pod) => portsOf(pod.spec).has(end.port))) {
        yield `${where}: no pod has a port ${end.port}`;
      }
    }
  }
}

// A Service without ports is one for names alone.
function* service(where, object, chosen) {
  if (!isHeadless(object) && !object.spec.ports?.length) {
    yield `${where}: has no ports`;
  }
  for (const port of object.spec.ports ?? []) {
    for (const pod of chosen) {
      const number = portsOf(pod.spec).get(port.targetPort);
      if (number === undefined) {
        yield `${where}: no port ${port.targetPort} in its pods`;
      } else if (number !== port.port) {
        yield `${where}: port ${port.port} is ${number} in its pods`;
      }
    }
  }
}

// All ports that serve metrics are scraped, and what the Prometheus operator
// looks for can be found by a label.
function* monitors(objects, pods) {
  const isMonitored = objects.some(({kind}) => kind === 'PodMonitor');
  for (const {owner, spec, labels} of isMonitored ? pods : []) {
    const scraped = objects.filter(
        (o) => o.kind === 'PodMonitor' && matches(o.spec.selector, labels));
    const endpoints = scraped.flatMap((o) => o.spec.podMetricsEndpoints);
    for (const name of portsOf(spec).keys()) {
      if (/^(http|metrics)/.test(name) &&
          !endpoints.some((endpoint) => endpoint.port === name)) {
        yield `${owner.kind} ${owner.metadata.name}: port ${name} is not scraped`;
      }
    }
  }
  for (const {apiVersion, kind, metadata} of objects) {
    if (apiVersion.startsWith('monitoring.coreos.com/') &&
        metadata.labels?.['app.kubernetes.io/part-of'] !== 'weft') {
      yield `${kind} ${metadata.name}: has no label of Weft`;
    }
  }
}

function* references(where, spec, objects) {
  const has = (kind, name) => objects.some(
      (o) => o.kind === kind && o.metadata.name === name);
  if (!has('ServiceAccount', spec.serviceAccountName)) {
    yield `${where}: no ServiceAccount ${spec.serviceAccountName}`;
  }
  for (const {persistentVolumeClaim: claim, configMap} of spec.volumes ?? []) {
    if (claim && !has('PersistentVolumeClaim', claim.claimName)) {
      yield `${where}: no claim ${claim.claimName}`;
    }
    if (configMap && !has('ConfigMap', configMap.name)) {
      yield `${where}: no ConfigMap ${configMap.name}`;
    }
  }
  const mounted = containersOf(spec).flatMap((c) => c.volumeMounts ?? []);
  for (const {name} of spec.volumes ?? []) {
    if (!mounted.some((mount) => mount.name === name)) {
      yield `${where}: volume ${name} is mounted nowhere`;
    }
  }
}

function* runtimes(objects) {
  for (const {kind, metadata, spec} of objects) {
    if (kind === 'TrainJob' &&
        !objects.some((o) => o.kind === spec.runtimeRef.kind &&
                          o.metadata.name === spec.runtimeRef.name)) {
      yield `TrainJob ${metadata.name}: no ${spec.runtimeRef.kind} ${
          spec.runtimeRef.name}`;
    }
  }
}

const OF_CLUSTER = ['Namespace', 'ClusterTrainingRuntime'];

function* namespaces(objects) {
  for (const {kind, metadata} of objects) {
    const expected = OF_CLUSTER.includes(kind) ? undefined : NAMESPACE;
    if (metadata.namespace !== expected) {
      yield `${kind} ${metadata.name}: is in namespace ${metadata.namespace}`;
    }
    if (kind === 'Namespace' &&
        metadata.labels?.['pod-security.kubernetes.io/enforce'] !==
            'restricted') {
      yield 'the namespace does not enforce the restricted profile';
    }
  }
}

// What is wrong with an overlay, a line each.
export function violationsOf(objects) {
  const pods = podTemplatesOf(objects);
  const found = [
    ...selectors(objects, pods), ...monitors(objects, pods), ...runtimes(objects),
    ...namespaces(objects), ...networkViolations(objects, pods),
    ...workloadViolations(objects, pods)
  ];
  for (const {owner, spec} of pods) {
    const where = `${owner.kind} ${owner.metadata.name}`;
    found.push(
        ...securityViolations(where, spec), ...references(where, spec, objects));
    const claims = (owner.spec.volumeClaimTemplates ?? [])
                       .map((claim) => claim.metadata.name);
    for (const container of containersOf(spec)) {
      const here = `${where}, container ${container.name}`;
      found.push(...containerViolations(here, spec, container, claims, objects));
    }
  }
  return found;
}
