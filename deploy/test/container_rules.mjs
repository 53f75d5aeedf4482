// What must fit between a container, its pod and the flags of what it runs.
import {
  binaryOf, flagsOf, httpPortsOf, isDaemon, portOf, PROBES, probesOf,
  secondsOf
} from './objects.mjs';

// The flags that listen, the ports that are declared and those that probes ask
// are the same.
function* ports(where, container) {
  const flags = flagsOf(container);
  const expected = new Set(httpPortsOf(container));
  if (flags.listen_address) expected.add(portOf(flags.listen_address));
  if (flags.health_address) expected.add(portOf(flags.health_address));
  const declared =
      new Set((container.ports ?? []).map((port) => port.containerPort));
  for (const port of expected) {
    if (!declared.has(port)) yield `${where}: port ${port} is not declared`;
  }
  for (const port of declared) {
    if (!expected.has(port)) yield `${where}: nothing listens on ${port}`;
  }
}

// Daemons are asked by all three probes, each for the service of its name.
function* probes(where, container) {
  const flags = flagsOf(container);
  const health = portOf(flags.health_address ?? flags.listen_address);
  for (const [kind, grpc] of probesOf(container)) {
    if (grpc?.port !== health) {
      yield `${where}: ${kind} asks ${grpc?.port}, health is on ${health}`;
    }
    if (grpc?.service !== kind.replace('Probe', '')) {
      yield `${where}: ${kind} asks for ${grpc?.service}`;
    }
  }
  for (const kind of isDaemon(container) ? PROBES : []) {
    if (container[kind] === undefined) yield `${where}: has no ${kind}`;
  }
}

// The coordinator that workers and clients are told of is a Service, or a pod
// of a JobSet, that listens there.
function* coordinators(where, container, objects) {
  const {coordinator} = flagsOf(container);
  if (coordinator === undefined) return;
  const [host, port] = coordinator.split(':');
  const isService = objects.some(
      (o) => o.kind === 'Service' && o.metadata.name === host &&
          o.spec.ports?.some((p) => p.port === Number(port)));
  const isPod = objects.some(
      (o) => o.kind === 'JobSet' && port === '7070' &&
          `${o.metadata.name}-${o.spec.coordinator.replicatedJob}-0-0.${
              o.spec.network.subdomain}` === host);
  if (!isService && !isPod) yield `${where}: nobody is ${coordinator}`;
}

function* resources(where, spec, container) {
  const {requests, limits} = container.resources ?? {};
  if (requests === undefined || limits === undefined ||
      JSON.stringify(Object.entries(requests).sort()) !==
          JSON.stringify(Object.entries(limits).sort())) {
    yield `${where}: requests and limits differ`;
  }
  // Nodes with GPUs refuse what does not tolerate them.
  if (limits?.['nvidia.com/gpu'] !== undefined &&
      !spec.tolerations?.some((t) => t.key === 'nvidia.com/gpu')) {
    yield `${where}: its pod does not tolerate nodes with GPUs`;
  }
}

// A tag that nobody pushes anywhere else, for an image that is missed is better
// than an old one.
function* image(where, {image}) {
  const tag = image.match(/:([^/]+)$/)?.[1];
  if (tag === undefined || tag === 'latest') {
    yield `${where}: image ${image} may be of any version`;
  }
}

// A daemon lets its peers see it go, and what that and its own grace take fits
// the pod's.
function* grace(where, spec, container) {
  if (!isDaemon(container)) return;
  const stop = container.lifecycle?.preStop?.sleep?.seconds;
  if (stop === undefined) yield `${where}: has no preStop`;
  const {grace: text = '0s'} = flagsOf(container);
  const own = secondsOf(text);
  if (Number.isNaN(own)) yield `${where}: --grace=${text} is no duration`;
  // The supervisor kills one second later, and needs a moment itself.
  if ((stop ?? 0) + own + 2 > spec.terminationGracePeriodSeconds) {
    yield `${where}: preStop and --grace take longer than the pod's grace`;
  }
}

const mountAt = (container, path) =>
    container.volumeMounts?.find(({mountPath}) => mountPath === path);

// What is mounted is a volume, and what is written is mounted.
function* mounts(where, spec, container, claims) {
  const known = new Set([
    ...(spec.volumes ?? []).map((volume) => volume.name), ...claims
  ]);
  for (const mount of container.volumeMounts ?? []) {
    if (!known.has(mount.name)) yield `${where}: no volume ${mount.name}`;
  }
  const {state_dir: state, artifacts_dir: artifacts} = flagsOf(container);
  const written = ['/tmp', state, artifacts];
  if (binaryOf(container) === 'worker') written.push('/dev/shm');
  for (const path of written.filter((p) => p !== undefined)) {
    const mount = mountAt(container, path);
    if (mount === undefined || mount.readOnly) {
      yield `${where}: cannot write ${path}`;
    }
  }
}

// The default /dev/shm has 64 MiB, and a disk is no shared memory.
function* sharedMemory(where, spec, container) {
  const name = mountAt(container, '/dev/shm')?.name;
  const volume = spec.volumes?.find((v) => v.name === name);
  if (binaryOf(container) === 'worker' && volume?.emptyDir?.medium !== 'Memory') {
    yield `${where}: /dev/shm is not in memory`;
  }
}

export function* containerViolations(where, spec, container, claims, objects) {
  yield* ports(where, container);
  yield* probes(where, container);
  yield* coordinators(where, container, objects);
  yield* resources(where, spec, container);
  yield* image(where, container);
  yield* grace(where, spec, container);
  yield* mounts(where, spec, container, claims);
  yield* sharedMemory(where, spec, container);
}
