// Which flows NetworkPolicies allow, and which there are.
import {readFileSync} from 'node:fs';

import {containersOf} from './rules.mjs';

const isWithin = (selector, labels) =>
    Object.entries(selector.matchLabels ?? {})
        .every(([key, value]) => labels[key] === value);

// Whether a rule's port is `number`, one of a pod with this spec.
function fitsPort(rule, number, spec) {
  if (rule.protocol !== 'TCP') return false;
  const named = containersOf(spec)
                    .flatMap((container) => container.ports ?? [])
                    .find((port) => port.name === rule.port);
  const first = named?.containerPort ?? rule.port;
  return number >= first && number <= (rule.endPort ?? first);
}

// Peers in other namespaces are no pods of ours.
const isPeer = (peer, labels) => peer.namespaceSelector === undefined &&
    isWithin(peer.podSelector, labels);

// Whether the policies let `from` open a connection to `port` of `to`; both are
// {labels, spec}.
export function allows(policies, from, to, port) {
  return permits(policies, 'Egress', 'egress', 'to', from, to, port, to.spec) &&
      permits(policies, 'Ingress', 'ingress', 'from', to, from, port, to.spec);
}

function permits(policies, type, rules, peers, pod, other, port, spec) {
  const ofPod = policies.filter(
      (p) => p.spec.policyTypes.includes(type) &&
          isWithin(p.spec.podSelector, pod.labels));
  return ofPod.length === 0 ||
      ofPod.some((p) => (p.spec[rules] ?? []).some(
                     (rule) => rule[peers].some((x) => isPeer(x, other.labels)) &&
                         rule.ports.some((x) => fitsPort(x, port, spec))));
}

const ESTABLISHED = '01';
const LISTEN = '0A';

// "0100007F:1F90" or its form for IPv6, as {ip, port}.
function endpoint(text) {
  const [address, port] = text.split(':');
  const ip = address.slice(-8).match(/../g).reverse().map((b) => parseInt(b, 16));
  return {ip: ip.join('.'), port: parseInt(port, 16)};
}

// The sockets in the network namespace of a process: [{local, remote, state}].
export function socketsOf(pid) {
  return ['tcp', 'tcp6'].flatMap(
      (file) => readFileSync(`/proc/${pid}/net/${file}`, 'utf8')
                    .trim()
                    .split('\n')
                    .slice(1)
                    .map((line) => line.trim().split(/\s+/))
                    .map(([, local, remote, state]) => ({
                           local: endpoint(local),
                           remote: endpoint(remote),
                           state,
                         })));
}

// Connections between pods, now: [{from, to, port}], where `to` listens.
export function connectionsOf(pods) {
  const sockets = new Map(pods.map((pod) => [pod, socketsOf(pod.pid)]));
  const found = [];
  for (const from of pods) {
    for (const {remote, state} of sockets.get(from)) {
      const to = pods.find((pod) => pod.ip === remote.ip && pod !== from);
      const listens = to !== undefined && sockets.get(to).some(
          (s) => s.state === LISTEN && s.local.port === remote.port);
      if (state === ESTABLISHED && listens) found.push({from, to, port: remote.port});
    }
  }
  return found;
}
