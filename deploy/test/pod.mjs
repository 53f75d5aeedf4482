// Runs the pods of a manifest on this machine, as the kubelet and a container
// runtime would: each in network, IPC and UTS namespaces of its own with an
// address on a bridge and the cluster's names in /etc/hosts; its container as
// PID 1 of a PID namespace, under the user and group of its security context,
// without capabilities, on a root that is read-only, with its volumes.
//
// Needs root, and a network namespace of its own for the bridge. Limits of CPU
// and memory and the seccomp profile are not applied; /etc/hosts knows every
// Service and pod in place of the cluster's DNS.
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {appendFileSync, chmodSync, chownSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

import {probe, run, TREE} from './packages.mjs';
import {probesOf} from './rules.mjs';

const SUBNET = '10.244.0';
const BRIDGE = 'weft0';
// What the image sets.
const CONTAINERFILE =
    readFileSync(join(TREE, 'deploy/container/Containerfile'), 'utf8');
const IMAGE_ENVIRONMENT = {
  PATH: '/usr/local/bin:/usr/bin:/bin',
  ...Object.fromEntries([...CONTAINERFILE.matchAll(/^ENV (\w+)=(.*)$/gm)].map(
      ([, name, value]) => [name, value])),
};

const quote = (word) => `'${String(word).replaceAll('\'', '\'\\\'\'')}'`;

// A machine of the cluster: the bridge that its pods are on, and its volumes.
export class Node {
  // `roots`: for each image, the folder that is its root, or LAYER:FOLDER with
  // one whose files come on top.
  constructor(objects, roots) {
    this.objects = objects;
    this.roots = roots;
    this.folder = mkdtempSync(join(tmpdir(), 'weft-node-'));
    this.pods = [];
    for (const command of
             [`link add ${BRIDGE} type bridge`, `link set ${BRIDGE} up`,
              `link set lo up`, `addr add ${SUBNET}.1/24 dev ${BRIDGE}`]) {
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

  // What the cluster's DNS would answer.
  hosts() {
    const lines = ['127.0.0.1 localhost'];
    for (const pod of this.pods) {
      const {namespace} = pod.set.metadata;
      const within = `${pod.name}.${pod.set.spec.serviceName}`;
      lines.push(`${pod.ip} ${pod.name} ${within} ${within}.${namespace}.svc`);
      for (const service of this.objects.filter((o) => pod.isOf(o))) {
        const {name} = service.metadata;
        lines.push(`${pod.ip} ${name} ${name}.${namespace}.svc`);
      }
    }
    return `${lines.join('\n')}\n`;
  }

  remove() {
    for (const pod of this.pods) pod.kill();
    rmSync(this.folder, {recursive: true, force: true});
  }
}

class Pod {
  constructor(node, set, ordinal, ip) {
    this.node = node;
    this.set = set;
    this.name = `${set.metadata.name}-${ordinal}`;
    this.ip = ip;
    this.spec = set.spec.template.spec;
    this.labels = set.spec.template.metadata.labels;
    [this.container] = this.spec.containers;
    this.logFile = join(node.folder, `${this.name}.log`);
  }

  // Whether a Service chooses this pod.
  isOf(object) {
    return object.kind === 'Service' &&
        Object.entries(object.spec.selector)
            .every(([k, v]) => this.labels[k] === v);
  }

  get log() {
    return readFileSync(this.logFile, 'utf8');
  }

  // The container's PID 1, in the numbers of this machine.
  get pid() {
    const outer = this.runtime.pid;
    return Number(
        readFileSync(`/proc/${outer}/task/${outer}/children`, 'utf8').trim());
  }

  async start() {
    writeFileSync(this.logFile, '');
    await this.startSandbox();
    const script = join(this.node.folder, `${this.name}.sh`);
    writeFileSync(script, this.containerScript());
    this.runtime = spawn(
        'nsenter',
        [`--target=${this.sandbox.pid}`, '--net', '--ipc', '--uts', 'unshare',
         '--pid', '--mount', '--fork', '--kill-child', 'sh', '-e', script],
        {stdio: ['ignore', 'pipe', 'pipe']});
    this.ended = once(this.runtime, 'exit');
    for (const stream of [this.runtime.stdout, this.runtime.stderr]) {
      stream.on('data', (data) => appendFileSync(this.logFile, data));
    }
  }

  // The namespaces that the containers of a pod share, and its address.
  async startSandbox() {
    this.sandbox = spawn(
        'unshare',
        ['--net', '--ipc', '--uts', 'sh', '-c',
         `hostname ${this.name} && echo ready && exec sleep infinity`],
        {stdio: ['ignore', 'pipe', 'inherit']});
    await once(this.sandbox.stdout, 'data');
    const {pid} = this.sandbox;
    this.link = `veth${this.ip.split('.').at(-1)}`;
    const within = (...args) =>
        run('nsenter', [`--target=${pid}`, '--net', 'ip', ...args]);
    run('ip', ['link', 'add', this.link, 'type', 'veth', 'peer', 'name', 'eth0',
               'netns', String(pid)]);
    run('ip', ['link', 'set', this.link, 'master', BRIDGE, 'up']);
    within('addr', 'add', `${this.ip}/24`, 'dev', 'eth0');
    within('link', 'set', 'eth0', 'up');
    within('link', 'set', 'lo', 'up');
  }

  // Becomes the container.
  containerScript() {
    const work = quote(join(this.node.folder, `${this.name}.root`));
    const root = `${work}/root`;
    const [image, layer] =
        this.node.roots[this.container.image.split(':')[0]].split(':').reverse();
    const mounts = this.container.volumeMounts;
    const {runAsUser, runAsGroup, fsGroup} = this.spec.securityContext;
    const command = [this.container.command, this.container.args ?? []].flat();
    return [
      `mkdir -p ${work}`,
      `mount -t tmpfs tmpfs ${work}`,
      `mkdir ${work}/upper ${work}/work ${root}`,
      `mount -t overlay -o lowerdir=${quote(image)},upperdir=${work}/upper,` +
          `workdir=${work}/work overlay ${root}`,
      ...(layer === undefined ? [] : [`cp -r ${quote(layer)}/. ${root}`]),
      `mkdir -p ${root}/proc ${root}/sys ${root}/dev`,
      ...mounts.filter(({mountPath}) => !mountPath.startsWith('/dev/'))
          .map(({mountPath}) => `mkdir -p ${root}${quote(mountPath)}`),
      `printf %s ${quote(this.node.hosts())} >${root}/etc/hosts`,
      `hostname >${root}/etc/hostname`,
      `rm -f ${root}/etc/resolv.conf`,
      `echo nameserver ${SUBNET}.1 >${root}/etc/resolv.conf`,
      `mount -t proc proc ${root}/proc`,
      `mount -t sysfs -o ro sysfs ${root}/sys`,
      `mount -t tmpfs -o mode=755 tmpfs ${root}/dev`,
      'for device in null zero full random urandom; do',
      `  : >${root}/dev/$device`,
      `  mount --bind /dev/$device ${root}/dev/$device`,
      'done',
      `mount -o remount,ro ${root}`,
      ...mounts.flatMap((mount) => this.mountScript(mount, root)),
      `exec chroot ${root} setpriv --reuid=${runAsUser} --regid=${runAsGroup} ` +
          `--groups=${fsGroup} --no-new-privs --inh-caps=-all ` +
          `--bounding-set=-all env -i ${this.environment().map(quote).join(' ')} ` +
          command.map(quote).join(' '),
    ].join('\n');
  }

  mountScript({name, mountPath, readOnly}, root) {
    const target = `${root}${quote(mountPath)}`;
    const volume = (this.spec.volumes ?? []).find((v) => v.name === name);
    const {fsGroup} = this.spec.securityContext;
    const lines = [`mkdir -p ${target}`];
    if (volume?.emptyDir?.medium === 'Memory') {
      const size = volume.emptyDir.sizeLimit.replace('i', '');
      lines.push(`mount -t tmpfs -o size=${size},mode=1777 tmpfs ${target}`);
      return lines;
    }
    const claim = volume?.persistentVolumeClaim?.claimName;
    const folder = this.node.volume(claim ?? `${this.name}.${name}`, fsGroup);
    lines.push(`mount --bind ${quote(folder)} ${target}`);
    if (readOnly) lines.push(`mount -o remount,bind,ro ${target}`);
    return lines;
  }

  environment() {
    const own = {...IMAGE_ENVIRONMENT, HOSTNAME: this.name};
    for (const {name, value} of this.container.env ?? []) own[name] = value;
    return Object.entries(own).map(([name, value]) => `${name}=${value}`);
  }

  // The answer to one probe of the container, as the kubelet asks it.
  probe(kind) {
    const [, {port, service}] =
        probesOf(this.container).find(([name]) => name === kind);
    return probe(
        `${this.ip}:${port}`, service, this.container[kind].timeoutSeconds ?? 1);
  }

  // Asks again, for as long as the kubelet would, until it serves; the last
  // answer.
  async awaitServing(kind, seconds) {
    const {periodSeconds = 10, failureThreshold = 3} = this.container[kind];
    const deadline =
        Date.now() + 1000 * (seconds ?? periodSeconds * failureThreshold);
    let answer;
    do {
      answer = await this.probe(kind);
    } while (answer !== 'SERVING' && Date.now() < deadline);
    return answer;
  }

  // Runs a command in the container, as its user: {status, stdout, stderr}.
  exec(command) {
    const {runAsUser, runAsGroup} = this.spec.securityContext;
    const child = spawn('nsenter', [
      `--target=${this.pid}`, '--all', '--root', '--wd=/',
      `--setuid=${runAsUser}`, `--setgid=${runAsGroup}`, 'env', '-i',
      ...this.environment(), ...command
    ]);
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (data) => stdout += data);
    child.stderr.on('data', (data) => stderr += data);
    return once(child, 'close').then(([status]) => ({status, stdout, stderr}));
  }

  // SIGTERM to PID 1; its exit code, or nothing when it takes longer than what
  // preStop leaves of the grace.
  async terminate() {
    const preStop = this.container.lifecycle?.preStop?.sleep?.seconds ?? 0;
    const grace = this.spec.terminationGracePeriodSeconds - preStop;
    process.kill(this.pid, 'SIGTERM');
    let timer;
    const late =
        new Promise((over) => timer = setTimeout(() => over([undefined]), grace * 1000));
    const [code] = await Promise.race([this.ended, late]);
    clearTimeout(timer);
    return code;
  }

  // Bytes that came out of the pod.
  sentBytes() {
    const [link] = JSON.parse(run('ip', ['-j', '-s', 'link', 'show', this.link]));
    return link.stats64.rx.bytes;
  }

  kill() {
    this.runtime?.kill('SIGKILL');
    this.sandbox?.kill('SIGKILL');
  }
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
