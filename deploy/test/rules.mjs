// What must hold between the objects of one overlay, beyond their types.

// Every pod template, with who owns it: {owner, spec, labels}.
export function podTemplatesOf(objects) {
  const found = [];
  const visit = (owner, node) => {
    if (node === null || typeof node !== 'object') return;
    if (Array.isArray(node.spec?.containers)) {
      found.push({owner, spec: node.spec, labels: node.metadata?.labels ?? {}});
    }
    Object.values(node).forEach((child) => visit(owner, child));
  };
  objects.forEach((object) => visit(object, object));
  return found;
}

export function containersOf(spec) {
  return [...(spec.initContainers ?? []), ...spec.containers];
}

export function flagsOf(container) {
  const flags = {};
  for (const arg of container.args ?? []) {
    const [, name, value] = arg.match(/^--([\w-]+)(?:=(.*))?$/) ?? [];
    if (name !== undefined) flags[name] = value ?? '';
  }
  return flags;
}

const isWithin = (selector, labels) => Object.entries(selector ?? {}).every(
    ([key, value]) => labels[key] === value);

const portOf = (address) => Number(address?.split(':').at(-1));

// Selectors of objects find pods, and Services find the ports they name.
function* selectors(objects, pods) {
  for (const object of objects) {
    const where = `${object.kind} ${object.metadata.name}`;
    const spec = object.spec ?? {};
    let selector = spec.selector?.matchLabels;
    if (object.kind === 'Service') selector = spec.selector;
    if (object.kind === 'NetworkPolicy') selector = spec.podSelector.matchLabels;
    if (selector === undefined) continue;
    const chosen = pods.filter((pod) => isWithin(selector, pod.labels));
    const isForClients =
        selector['app.kubernetes.io/component'] === 'client';
    if (chosen.length === 0 && !isForClients) {
      yield `${where}: its selector finds no pod`;
    }
    for (const port of object.kind === 'Service' ? spec.ports : []) {
      for (const pod of chosen) yield* targetPort(where, port, pod);
    }
    for (const end of spec.podMetricsEndpoints ?? []) {
      if (!chosen.some((pod) => portsOf(pod.spec).has(end.port))) {
        yield `${where}: no pod has a port ${end.port}`;
      }
    }
  }
}

// Policies name peers and ports that there are. Clients are no pods of ours.
function* policies(objects, pods) {
  for (const {kind, metadata, spec} of objects) {
    if (kind !== 'NetworkPolicy') continue;
    const where = `NetworkPolicy ${metadata.name}`;
    const peers = [
      ...(spec.ingress ?? []).flatMap((rule) => rule.from),
      ...(spec.egress ?? []).flatMap((rule) => rule.to)
    ];
    for (const {podSelector, namespaceSelector} of peers) {
      const labels = podSelector?.matchLabels ?? {};
      if (namespaceSelector !== undefined ||
          labels['app.kubernetes.io/component'] === 'client') {
        continue;
      }
      if (!pods.some((pod) => isWithin(labels, pod.labels))) {
        yield `${where}: a peer finds no pod`;
      }
    }
    const named = (spec.ingress ?? []).flatMap((rule) => rule.ports)
                      .filter(({port}) => typeof port === 'string');
    const chosen =
        pods.filter((pod) => isWithin(spec.podSelector.matchLabels, pod.labels));
    for (const {port} of named) {
      if (!chosen.some((pod) => portsOf(pod.spec).has(port))) {
        yield `${where}: no pod has a port ${port}`;
      }
    }
  }
}

function portsOf(spec) {
  return new Map(containersOf(spec).flatMap(
      (c) => (c.ports ?? []).map((p) => [p.name, p.containerPort])));
}

function* targetPort(where, port, pod) {
  const number = portsOf(pod.spec).get(port.targetPort);
  if (number === undefined) {
    yield `${where}: no port ${port.targetPort} in its pods`;
  } else if (number !== port.port) {
    yield `${where}: port ${port.port} is ${number} in its pods`;
  }
}

// A workload's selector is among its own pods' labels, and its Service is there.
function* owners(objects) {
  for (const object of objects) {
    const {spec, kind, metadata} = object;
    if (kind !== 'StatefulSet') continue;
    if (!isWithin(spec.selector.matchLabels, spec.template.metadata.labels)) {
      yield `StatefulSet ${metadata.name}: its selector is not its pods'`;
    }
    if (!objects.some(
            (o) => o.kind === 'Service' && o.metadata.name === spec.serviceName)) {
      yield `StatefulSet ${metadata.name}: no Service ${spec.serviceName}`;
    }
  }
}

// The flags that listen, the ports that are declared and those that probes ask
// are the same.
function* ports(where, container) {
  const flags = flagsOf(container);
  const expected = new Set();
  if (flags.listen_address) expected.add(portOf(flags.listen_address));
  if (flags.health_address) expected.add(portOf(flags.health_address));
  const devices = flags.devices === undefined ? 1 : deviceCount(container);
  for (let i = 0; flags.http_address && i < devices; ++i) {
    expected.add(portOf(flags.http_address) + i);
  }
  const declared =
      new Set((container.ports ?? []).map((port) => port.containerPort));
  for (const port of expected) {
    if (!declared.has(port)) yield `${where}: port ${port} is not declared`;
  }
  for (const port of declared) {
    if (!expected.has(port)) yield `${where}: nothing listens on ${port}`;
  }
  const health = portOf(flags.health_address ?? flags.listen_address);
  for (const [kind, grpc] of probesOf(container)) {
    if (grpc?.port !== health) {
      yield `${where}: ${kind} asks ${grpc?.port}, health is on ${health}`;
    }
    if (grpc?.service !== kind.replace('Probe', '')) {
      yield `${where}: ${kind} asks for ${grpc?.service}`;
    }
  }
}

export function deviceCount(container) {
  const {devices} = flagsOf(container);
  return Number(
      devices === 'all' ? container.resources.limits['nvidia.com/gpu'] :
                          devices);
}

export function probesOf(container) {
  return ['startupProbe', 'readinessProbe', 'livenessProbe']
      .filter((kind) => container[kind] !== undefined)
      .map((kind) => [kind, container[kind].grpc]);
}

// The coordinator that workers and clients are told of is a Service, or a pod
// of a JobSet, that listens there.
function* coordinators(where, container, objects) {
  const {coordinator} = flagsOf(container);
  if (coordinator === undefined) return;
  const [host, port] = coordinator.split(':');
  const isService = objects.some(
      (o) => o.kind === 'Service' && o.metadata.name === host &&
          o.spec.ports.some((p) => p.port === Number(port)));
  const isPod = objects.some(
      (o) => o.kind === 'JobSet' && port === '7070' &&
          `${o.metadata.name}-${o.spec.coordinator.replicatedJob}-0-0.${
              o.spec.network.subdomain}` === host);
  if (!isService && !isPod) yield `${where}: nobody is ${coordinator}`;
}

function* resources(where, container) {
  const {requests, limits} = container.resources ?? {};
  if (requests === undefined || limits === undefined ||
      JSON.stringify(Object.entries(requests).sort()) !==
          JSON.stringify(Object.entries(limits).sort())) {
    yield `${where}: requests and limits differ`;
  }
}

// Pod Security Standards, profile restricted, and a root that is read-only.
function* restrictedPod(where, spec) {
  const security = spec.securityContext ?? {};
  if (security.runAsNonRoot !== true) yield `${where}: may run as root`;
  if (!(security.runAsUser > 0)) yield `${where}: has no user`;
  if (security.seccompProfile?.type !== 'RuntimeDefault') {
    yield `${where}: has no seccomp profile`;
  }
  for (const host of ['hostNetwork', 'hostPID', 'hostIPC']) {
    if (spec[host]) yield `${where}: ${host}`;
  }
  if (spec.automountServiceAccountToken !== false) {
    yield `${where}: gets a token of its service account`;
  }
  const allowed = ['name', 'configMap', 'emptyDir', 'persistentVolumeClaim'];
  for (const volume of spec.volumes ?? []) {
    if (!Object.keys(volume).every((key) => allowed.includes(key))) {
      yield `${where}: volume ${volume.name} is of a kind not allowed`;
    }
  }
}

function* restrictedContainer(where, container) {
  const security = container.securityContext ?? {};
  if (security.allowPrivilegeEscalation !== false) {
    yield `${where}: may escalate privileges`;
  }
  if (security.privileged) yield `${where}: is privileged`;
  if (security.readOnlyRootFilesystem !== true) {
    yield `${where}: its root can be written`;
  }
  if (JSON.stringify(security.capabilities) !== '{"drop":["ALL"]}') {
    yield `${where}: keeps capabilities`;
  }
  for (const port of container.ports ?? []) {
    if (port.hostPort) yield `${where}: takes port ${port.hostPort} of the host`;
  }
}

// What preStop and the worker's own grace take fits the pod's.
function* grace(where, spec, container) {
  const own = Number(flagsOf(container).grace?.replace('s', '') ?? 0);
  const stop = container.lifecycle?.preStop?.sleep?.seconds ?? 0;
  // The supervisor kills one second later, and needs a moment itself.
  if (stop + own + 2 > spec.terminationGracePeriodSeconds) {
    yield `${where}: preStop and --grace take longer than the pod's grace`;
  }
}

function* volumes(where, spec, container, claims) {
  const known = new Set([
    ...(spec.volumes ?? []).map((volume) => volume.name), ...claims
  ]);
  for (const mount of container.volumeMounts ?? []) {
    if (!known.has(mount.name)) yield `${where}: no volume ${mount.name}`;
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
}

function* namespaces(objects) {
  const cluster = ['Namespace', 'ClusterTrainingRuntime'];
  for (const {kind, metadata} of objects) {
    if (!cluster.includes(kind) && metadata.namespace !== 'weft') {
      yield `${kind} ${metadata.name}: is in namespace ${metadata.namespace}`;
    }
    if (kind === 'Namespace' &&
        metadata.labels?.['pod-security.kubernetes.io/enforce'] !==
            'restricted') {
      yield 'the namespace does not enforce the restricted profile';
    }
  }
}

// Traffic is denied unless a policy names it.
function* isolation(objects) {
  const denies = objects.some(
      (o) => o.kind === 'NetworkPolicy' &&
          Object.keys(o.spec.podSelector).length === 0 &&
          o.spec.policyTypes.includes('Ingress') &&
          o.spec.policyTypes.includes('Egress') && !o.spec.ingress &&
          !o.spec.egress);
  if (!denies) yield 'no NetworkPolicy denies what is not named';
}

// What is wrong with an overlay, a line each.
export function violationsOf(objects) {
  const pods = podTemplatesOf(objects);
  const found = [
    ...selectors(objects, pods), ...policies(objects, pods), ...owners(objects),
    ...namespaces(objects), ...isolation(objects)
  ];
  for (const {owner, spec} of pods) {
    const where = `${owner.kind} ${owner.metadata.name}`;
    found.push(...restrictedPod(where, spec), ...references(where, spec, objects));
    const claims = (owner.spec.volumeClaimTemplates ?? [])
                       .map((claim) => claim.metadata.name);
    for (const container of containersOf(spec)) {
      const here = `${where}, container ${container.name}`;
      found.push(
          ...ports(here, container), ...coordinators(here, container, objects),
          ...resources(here, container), ...restrictedContainer(here, container),
          ...grace(here, spec, container),
          ...volumes(here, spec, container, claims));
    }
  }
  return found;
}
