// The oldest Kubernetes that has what the manifests use.

// Since which minor version of Kubernetes 1 a field is there without a feature
// gate; the last of `path` is its name, '*' is any item.
const SINCE = [
  {what: 'native sidecars', since: 29, path: ['initContainers', '*', 'restartPolicy']},
  {what: 'probes by gRPC', since: 24, path: ['livenessProbe', 'grpc']},
  {what: 'probes by gRPC', since: 24, path: ['readinessProbe', 'grpc']},
  {what: 'probes by gRPC', since: 24, path: ['startupProbe', 'grpc']},
  {what: 'a preStop that sleeps', since: 30, path: ['preStop', 'sleep']},
  {what: 'a range of ports', since: 22, path: ['ports', '*', 'endPort']},
  {what: 'Indexed Jobs', since: 22, path: ['completionMode']},
  {what: 'eviction of unhealthy pods', since: 27, path: ['unhealthyPodEvictionPolicy']},
];

const fits = (path, pattern) => pattern.every((key, i) => {
  const actual = path[path.length - pattern.length + i];
  return key === '*' ? Number.isInteger(actual) : key === actual;
});

// [{what, since}] of the features that an object with these field paths uses.
export function featuresOf(paths) {
  return SINCE.filter(({path}) => paths.some((p) => fits(p, path)));
}
