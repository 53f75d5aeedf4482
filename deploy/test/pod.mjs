// Runs a pod of a manifest on this machine, as the kubelet and a container
// runtime would: in network, IPC and UTS namespaces of its own with an address on
// the bridge of its node; its container as PID 1 of a PID namespace, under the user
// and group of its security context, without capabilities, on a root that is
// read-only, with its volumes.
//
// Limits of CPU and memory and the seccomp profile are not applied.
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {appendFileSync, readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {setTimeout as pause} from 'node:timers/promises';

import {BASE_ENVIRONMENT, imageEnvironment} from './image.mjs';
import {probesOf} from './objects.mjs';
import {probe, run} from './packages.mjs';

const quote = (word) => `'${String(word).replaceAll('\'', '\'\\\'\'')}'`;

// One pod of a StatefulSet on a Node.
export class Pod {
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

  // What a container says goes before what its pod says.
  get security() {
    return {...this.spec.securityContext, ...this.container.securityContext};
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
    run('ip', ['link', 'set', this.link, 'master', this.node.bridge, 'up']);
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
    const {runAsUser, runAsGroup, fsGroup} = this.security;
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
      `printf %s ${quote(this.node.hostsOf(this))} >${root}/etc/hosts`,
      `hostname >${root}/etc/hostname`,
      `rm -f ${root}/etc/resolv.conf`,
      `echo nameserver ${this.node.address} >${root}/etc/resolv.conf`,
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
    const {fsGroup} = this.security;
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
    const own = {...imageEnvironment(BASE_ENVIRONMENT), HOSTNAME: this.name};
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

  // Asks again, for as long and as often as the kubelet would, until it serves;
  // the last answer.
  async awaitServing(kind, seconds) {
    const {periodSeconds = 10, failureThreshold = 3} = this.container[kind];
    const deadline =
        Date.now() + 1000 * (seconds ?? periodSeconds * failureThreshold);
    for (;;) {
      const answer = await this.probe(kind);
      if (answer === 'SERVING' || Date.now() >= deadline) return answer;
      await pause(1000 * periodSeconds);
    }
  }

  // Runs a command in the container, as its user: {status, stdout, stderr}.
  exec(command) {
    const {runAsUser, runAsGroup} = this.security;
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
