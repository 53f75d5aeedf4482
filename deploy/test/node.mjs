// A machine of a cluster: the bridge that its pods are on, and their volumes.
//
// Needs root, and a network namespace of its own for the bridge. /etc/hosts knows
// the names of Services and pods in place of the cluster's DNS.
import {chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

import {isHeadless, serves} from './objects.mjs';
import {run} from './packages.mjs';
import {Pod} from './pod.mjs';

const SUBNET = '10.244.0';
const BRIDGE = 'weft0';

// /etc/hosts of `self`: its own name, those of Services, and of pods whose
// StatefulSet names a headless Service. Pods are {name, ip, labels, set}.
export function hostsOf(objects, pods, self) {
  const lines = ['127.0.0.1 localhost', `${self.ip} ${self.name}`];
  for (const {name: pod, ip, labels, set} of pods) {
    const services = objects.filter(
        (o) => o.kind === 'Service' && serves(o, labels));
    for (const service of services) {
      const {name, namespace} = service.metadata;
      const names = [name];
      if (isHeadless(service) && set.spec.serviceName === name) {
        names.push(`${pod}.${name}`);
      }
      lines.push([ip, ...names.flatMap((n) => [n, `${n}.${namespace}.svc`])].join(' '));
    }
  }
  return `${lines.join('\n')}\n`;
}

export class Node {
  // `roots`: for each image, the folder that is its root, or LAYER:FOLDER with
  // one whose files come on top.
  constructor(objects, roots) {
    this.objects = objects;
    this.roots = roots;
    this.folder = mkdtempSync(join(tmpdir(), 'weft-node-'));
    this.pods = [];
    this.bridge = BRIDGE;
    this.address = `${SUBNET}.1`;
    for (const command of
             [`link add ${BRIDGE} type bridge`, `link set ${BRIDGE} up`,
              `link set lo up`, `addr add ${this.address}/24 dev ${BRIDGE}`]) {
      run('ip', command.split(' '));
    }
  }

  // The pods of a StatefulSet, not started. All are to be named before the
  // first starts: they know each other's names.
  addPods(name) {
    const set = this.objects.find(
        (o) => o.kind === 'StatefulSet' && o.metadata.name === name);
    const pods = Array.from({length: set.spec.replicas}, (_, i) => {
      const pod = new Pod(this, set, i, `${SUBNET}.${this.pods.length + 2}`);
      this.pods.push(pod);
      return pod;
    });
    return pods;
  }

  // The folder behind a claim, or a pod's own for a volume.
  volume(name, fsGroup) {
    const folder = join(this.folder, 'volumes', name);
    mkdirSync(folder, {recursive: true});
    chownSync(folder, 0, fsGroup);
    chmodSync(folder, 0o2775);
    return folder;
  }

  // What `pod` finds in /etc/hosts, and the cluster's DNS would answer.
  hostsOf(pod) {
    return hostsOf(this.objects, this.pods, pod);
  }

  remove() {
    for (const pod of this.pods) pod.kill();
    rmSync(this.folder, {recursive: true, force: true});
  }
}
