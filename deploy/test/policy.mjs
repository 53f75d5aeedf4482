// Which flows NetworkPolicies allow.
//
// An end of a flow is {namespace, labels, spec}: the namespace of the policies
// unless another is named, and a pod's spec for ports with names.
import {containersOf, matches} from './objects.mjs';

export const NAMESPACE = 'weft';

const namespaceOf = ({namespace = NAMESPACE}) => namespace;

// Kubernetes' own reading of a policy that does not say.
function typesOf({policyTypes, egress}) {
  return policyTypes ?? (egress ? ['Ingress', 'Egress'] : ['Ingress']);
}

// Whether a rule's port is `number` of a pod with this spec.
function fitsPort(rule, number, protocol, spec) {
  if ((rule.protocol ?? 'TCP') !== protocol) return false;
  if (rule.port === undefined) return true;
  const named = containersOf(spec ?? {containers: []})
                    .flatMap((container) => container.ports ?? [])
                    .find((port) => port.name === rule.port);
  const first = named?.containerPort ?? rule.port;
  return number >= first && number <= (rule.endPort ?? first);
}

function isPeer({namespaceSelector, podSelector}, end) {
  const labels = {'kubernetes.io/metadata.name': namespaceOf(end)};
  const isOfNamespace = namespaceSelector === undefined ?
      namespaceOf(end) === NAMESPACE :
      matches(namespaceSelector, labels);
  return isOfNamespace && matches(podSelector ?? {}, end.labels);
}

// No list of peers or ports, or an empty one, means all.
const isAmong = (list, fits) => !list?.length || list.some(fits);

function permits(policies, direction, pod, other, isPort) {
  if (namespaceOf(pod) !== NAMESPACE) return true;
  const {type, rules, peers} = direction;
  const ofPod = policies.filter(
      ({spec}) => typesOf(spec).includes(type) &&
          matches(spec.podSelector, pod.labels));
  return ofPod.length === 0 ||
      ofPod.some(({spec}) => (spec[rules] ?? []).some(
                     (rule) => isAmong(rule[peers], (x) => isPeer(x, other)) &&
                         isAmong(rule.ports, isPort)));
}

const EGRESS = {type: 'Egress', rules: 'egress', peers: 'to'};
const INGRESS = {type: 'Ingress', rules: 'ingress', peers: 'from'};

// Whether the policies let `from` reach `port` of `to`.
export function allows(policies, from, to, port, protocol = 'TCP') {
  const isPort = (rule) => fitsPort(rule, port, protocol, to.spec);
  return permits(policies, EGRESS, from, to, isPort) &&
      permits(policies, INGRESS, to, from, isPort);
}
