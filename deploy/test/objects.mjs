// Readers of Kubernetes objects, which rules and pods share.

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

// The name of the Weft binary that a container runs.
export function binaryOf(container) {
  return container.command?.[0]?.match(/^\/opt\/weft\/bin\/(\w+)$/)?.[1];
}

// Whether it runs for as long as its pod, and not to an end of its own.
export function isDaemon(container) {
  return ['coordinator', 'worker'].includes(binaryOf(container));
}

export function flagsOf(container) {
  const flags = {};
  for (const arg of container.args ?? []) {
    const [, name, value] = arg.match(/^--([\w-]+)(?:=(.*))?$/) ?? [];
    if (name !== undefined) flags[name] = value ?? '';
  }
  return flags;
}

const SECONDS = {h: 3600, m: 60, s: 1, ms: 1e-3, us: 1e-6, ns: 1e-9};

// Of a duration as flags have it, such as 1m30s; NaN when it is none.
export function secondsOf(text) {
  if (!/^(\d+(\.\d+)?(h|ms|us|ns|m|s))+$/.test(text)) return NaN;
  return [...text.matchAll(/([\d.]+)([a-z]+)/g)].reduce(
      (sum, [, number, unit]) => sum + number * SECONDS[unit], 0);
}

export const portOf = (address) => Number(address?.split(':').at(-1));

// The named ports of a pod: name to number.
export function portsOf(spec) {
  return new Map(containersOf(spec).flatMap(
      (c) => (c.ports ?? []).map((p) => [p.name, p.containerPort])));
}

// The ports of a daemon's HTTP server, one a device.
export function httpPortsOf(container) {
  const {http_address: address, devices} = flagsOf(container);
  if (!address) return [];
  const count = devices === undefined ? 1 : deviceCount(container);
  return Array.from({length: count}, (_, i) => portOf(address) + i);
}

function deviceCount(container) {
  const {devices} = flagsOf(container);
  return Number(
      devices === 'all' ? container.resources.limits['nvidia.com/gpu'] :
                          devices);
}

export const PROBES = ['startupProbe', 'readinessProbe', 'livenessProbe'];

// [kind, what it asks by gRPC] of each probe that there is.
export function probesOf(container) {
  return PROBES.filter((kind) => container[kind] !== undefined)
      .map((kind) => [kind, container[kind].grpc]);
}

const OPERATORS = {
  In: (value, values) => values.includes(value),
  NotIn: (value, values) => !values.includes(value),
  Exists: (value) => value !== undefined,
  DoesNotExist: (value) => value === undefined,
};

// Whether a LabelSelector chooses what has these labels.
export function matches({matchLabels, matchExpressions}, labels) {
  return Object.entries(matchLabels ?? {})
             .every(([key, value]) => labels[key] === value) &&
      (matchExpressions ?? [])
          .every(
              ({key, operator, values}) =>
                  OPERATORS[operator](labels[key], values));
}

// Whether a Service or a policy, both of one namespace with the pod, chooses it.
export function serves(service, labels) {
  return service.spec.selector !== undefined &&
      matches({matchLabels: service.spec.selector}, labels);
}

export const isHeadless = (service) => service.spec.clusterIP === 'None';

export const COMPONENT = 'app.kubernetes.io/component';
