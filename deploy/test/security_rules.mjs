// Pod Security Standards, profile restricted, and a root that is read-only.
import {containersOf} from './objects.mjs';

// All that a security context may set. What the profile knows and is not here
// (ports of the host, SELinux, AppArmor, sysctls, /proc) is not used.
const POD_FIELDS = [
  'runAsNonRoot', 'runAsUser', 'runAsGroup', 'fsGroup', 'fsGroupChangePolicy',
  'seccompProfile'
];
const CONTAINER_FIELDS = [
  'runAsNonRoot', 'runAsUser', 'runAsGroup', 'seccompProfile',
  'allowPrivilegeEscalation', 'readOnlyRootFilesystem', 'capabilities',
  'privileged'
];
const VOLUME_FIELDS = ['name', 'configMap', 'emptyDir', 'persistentVolumeClaim'];

function* unknown(where, security, fields) {
  for (const field of Object.keys(security)) {
    if (!fields.includes(field)) yield `${where}: sets securityContext.${field}`;
  }
}

function* ofPod(where, spec) {
  yield* unknown(where, spec.securityContext ?? {}, POD_FIELDS);
  for (const host of ['hostNetwork', 'hostPID', 'hostIPC', 'hostUsers']) {
    if (spec[host]) yield `${where}: ${host}`;
  }
  if (spec.automountServiceAccountToken !== false) {
    yield `${where}: gets a token of its service account`;
  }
  for (const volume of spec.volumes ?? []) {
    if (!Object.keys(volume).every((key) => VOLUME_FIELDS.includes(key))) {
      yield `${where}: volume ${volume.name} is of a kind not allowed`;
    }
  }
}

// What a container says goes before what its pod says.
function* ofContainer(where, spec, container) {
  const own = container.securityContext ?? {};
  const security = {...spec.securityContext, ...own};
  yield* unknown(where, own, CONTAINER_FIELDS);
  if (security.runAsNonRoot !== true) yield `${where}: may run as root`;
  if (!(security.runAsUser > 0)) yield `${where}: has no user`;
  if (security.seccompProfile?.type !== 'RuntimeDefault') {
    yield `${where}: has no seccomp profile`;
  }
  if (own.allowPrivilegeEscalation !== false) {
    yield `${where}: may escalate privileges`;
  }
  if (own.privileged) yield `${where}: is privileged`;
  if (own.readOnlyRootFilesystem !== true) yield `${where}: its root can be written`;
  if (JSON.stringify(own.capabilities) !== '{"drop":["ALL"]}') {
    yield `${where}: keeps capabilities`;
  }
  for (const port of container.ports ?? []) {
    if (port.hostPort) yield `${where}: takes port ${port.hostPort} of the host`;
  }
}

export function* securityViolations(where, spec) {
  yield* ofPod(where, spec);
  for (const container of containersOf(spec)) {
    yield* ofContainer(`${where}, container ${container.name}`, spec, container);
  }
}
