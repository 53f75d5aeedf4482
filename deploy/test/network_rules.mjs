// What must hold of NetworkPolicies: all is denied but exactly what Weft needs.
import {
  COMPONENT, containersOf, flagsOf, httpPortsOf, matches, portOf, portsOf
} from './objects.mjs';
import {allows} from './policy.mjs';

const DNS = 53;
// Ranks take ports of these as jobs start.
const RANKS = [1024, 65535];
// A policy may name the ports of so many devices a pod, whether or not it has them.
const DEVICES = 8;

const policiesOf = (objects) =>
    objects.filter(({kind}) => kind === 'NetworkPolicy');

// Traffic is denied unless a policy names it.
function* isolation(objects) {
  const denies = policiesOf(objects).some(
      ({spec}) => Object.keys(spec.podSelector).length === 0 &&
          spec.policyTypes?.includes('Ingress') &&
          spec.policyTypes.includes('Egress') && !spec.ingress && !spec.egress);
  if (!denies) yield 'no NetworkPolicy denies what is not named';
}

const isForClients = (selector) => selector?.matchLabels?.[COMPONENT] === 'client';

// Policies name peers and ports that there are. Clients need not be here.
function* names(objects, pods) {
  for (const {metadata, spec} of policiesOf(objects)) {
    const where = `NetworkPolicy ${metadata.name}`;
    const rules = [
      ...(spec.ingress ?? []).map(({from, ports}) => ({peers: from, ports})),
      ...(spec.egress ?? []).map(({to, ports}) => ({peers: to, ports}))
    ];
    if (!rules.every((rule) => rule.peers?.length && rule.ports?.length)) {
      yield `${where}: a rule names no peers or no ports`;
    }
    for (const peer of rules.flatMap(({peers}) => peers ?? [])) {
      if (peer.ipBlock !== undefined) yield `${where}: a peer is no pod`;
      if (peer.namespaceSelector !== undefined || isForClients(peer.podSelector)) {
        continue;
      }
      if (!pods.some((pod) => matches(peer.podSelector ?? {}, pod.labels))) {
        yield `${where}: a peer finds no pod`;
      }
    }
    const chosen = pods.filter((pod) => matches(spec.podSelector, pod.labels));
    for (const {port} of (spec.ingress ?? []).flatMap((rule) => rule.ports ?? [])) {
      if (typeof port === 'string' &&
          !chosen.some((pod) => portsOf(pod.spec).has(port))) {
        yield `${where}: no pod has a port ${port}`;
      }
    }
  }
}

const OURS = {'app.kubernetes.io/name': 'weft'};

// Whom the pods might talk to: each other, a client, and strangers, of whom some
// look like ours.
function endsOf(pods) {
  const worker = {...OURS, [COMPONENT]: 'worker'};
  return [
    ...pods.map(({owner, labels, spec}) => ({
                  name: `${owner.kind} ${owner.metadata.name} (${labels[COMPONENT]})`,
                  role: labels[COMPONENT],
                  labels,
                  spec,
                })),
    {name: 'a client', role: 'client', labels: {...OURS, [COMPONENT]: 'client'}},
    {name: 'a stranger', labels: {}},
    {name: 'a stranger of ours', labels: OURS, role: 'ours'},
    {name: 'monitoring', role: 'monitoring', namespace: 'monitoring', labels: {}},
    {name: 'DNS', role: 'dns', namespace: 'kube-system',
     labels: {'k8s-app': 'kube-dns'}},
    {name: 'kube-system', namespace: 'kube-system', labels: {}},
    {name: 'namespace default', namespace: 'default', labels: {}},
    {name: 'a worker of namespace default', namespace: 'default', labels: worker},
  ];
}

// The ports of a role's pod that it serves for each of the others.
function servedBy({role, spec}) {
  const daemon = containersOf(spec).find((c) => flagsOf(c).http_address);
  const flags = flagsOf(daemon);
  const http = httpPortsOf(daemon);
  if (role === 'worker') {
    return {
      worker: {must: (port) => port >= RANKS[0] && port <= RANKS[1]},
      monitoring: {
        must: (port) => http.includes(port),
        may: (port) => port >= http[0] && port < http[0] + DEVICES,
      },
    };
  }
  const api = {must: (port) => port === portOf(flags.listen_address)};
  return {
    worker: api,
    client: api,
    monitoring: {must: (port) => http.includes(port)},
  };
}

// Whether a flow is needed (true), superfluous (false), or neither.
function isNeeded(from, to, port, protocol) {
  if (to.role === 'dns') {
    const isOurs = OURS['app.kubernetes.io/name'] ===
        from.labels['app.kubernetes.io/name'];
    return isOurs && port === DNS;
  }
  if (protocol !== 'TCP') return false;
  const {must, may} = to.served?.[from.role] ?? {};
  if (must?.(port)) return true;
  return may?.(port) ? undefined : false;
}

// Every port that anything names, and those beside it.
function portsToTry(objects, pods) {
  const named = [
    ...pods.flatMap(({spec}) => [...portsOf(spec).values()]),
    ...policiesOf(objects)
        .flatMap(({spec}) => [...(spec.ingress ?? []), ...(spec.egress ?? [])])
        .flatMap(({ports}) => ports ?? [])
        .flatMap(({port, endPort}) => [port, endPort])
        .filter(Number.isInteger),
    DNS, ...RANKS, 80
  ];
  return [...new Set(named.flatMap((port) => [port - 1, port, port + 1]))].filter(
      (port) => port > 0 && port <= RANKS[1]);
}

// The policies let through what is needed, and nothing else.
function* flows(objects, pods) {
  const ends = endsOf(pods);
  for (const end of ends) {
    if (['coordinator', 'worker'].includes(end.role)) end.served = servedBy(end);
  }
  const policies = policiesOf(objects);
  const ports = portsToTry(objects, pods);
  for (const from of ends) {
    for (const to of ends) {
      if (from.namespace !== undefined && to.namespace !== undefined) continue;
      for (const protocol of ['TCP', 'UDP']) {
        const wrong = ports.find((port) => {
          const needed = isNeeded(from, to, port, protocol);
          return needed !== undefined &&
              needed !== allows(policies, from, to, port, protocol);
        });
        if (wrong === undefined) continue;
        const verb =
            isNeeded(from, to, wrong, protocol) ? 'are refused' : 'are allowed';
        yield `NetworkPolicies: ${from.name} to ${to.name}, ${protocol} ${wrong}: ${
            verb}`;
      }
    }
  }
}

export function networkViolations(objects, pods) {
  return [
    ...isolation(objects), ...names(objects, pods), ...flows(objects, pods)
  ];
}
