// What /proc says of processes and of their sockets.
import {readdirSync, readFileSync} from 'node:fs';

const ESTABLISHED = '01';
const LISTEN = '0A';

// "0100007F:1F90" or its form for IPv6, as {ip, port}.
function endpoint(text) {
  const [address, port] = text.split(':');
  const ip = address.slice(-8).match(/../g).reverse().map((b) => parseInt(b, 16));
  return {ip: ip.join('.'), port: parseInt(port, 16)};
}

// The sockets in the network namespace of a process: [{local, remote, state}].
function socketsOf(pid) {
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

// Processes of this machine whose parent is `pid`, as [{pid, state}].
export function childrenOf(pid) {
  const found = [];
  for (const name of readdirSync('/proc').filter((n) => /^\d+$/.test(n))) {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
      const [state, parent] = stat.slice(stat.lastIndexOf(') ') + 2).split(' ');
      if (Number(parent) === pid) found.push({pid: Number(name), state});
    } catch {
      // It has ended.
    }
  }
  return found;
}

// The fields of /proc/PID/status.
export function statusOf(pid) {
  return Object.fromEntries(
      readFileSync(`/proc/${pid}/status`, 'utf8')
          .split('\n')
          .map((line) => line.split(/:\s*/, 2)));
}
