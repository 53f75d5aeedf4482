// Each rule of rules.mjs finds what breaks it. Run by `./weft manifests`.
import assert from 'node:assert/strict';
import {test} from 'node:test';

import {render} from './overlays.mjs';
import {violationsOf} from './rules.mjs';

// The parts of an overlay that are broken below.
function partsOf(objects) {
  const named = (kind, name) => objects.find(
      (o) => o.kind === kind && o.metadata.name === name);
  const worker = named('StatefulSet', 'weft-worker');
  const {spec} = worker.spec.template;
  return {
    objects,
    named,
    worker,
    spec,
    container: spec.containers[0],
    service: named('Service', 'weft-worker'),
    coordinator: named('StatefulSet', 'weft-coordinator'),
    namespace: named('Namespace', 'weft'),
    deny: named('NetworkPolicy', 'weft-default-deny'),
    policy: named('NetworkPolicy', 'weft-coordinator'),
    ranks: named('NetworkPolicy', 'weft-worker'),
    monitor: named('PodMonitor', 'weft-worker'),
  };
}

const remove = (objects, object) => objects.splice(objects.indexOf(object), 1);

// What is found, and what breaks it, in overlay multi-node.
const BREAKS = [
  ['its selector finds no pod',
   (c) => c.service.spec.selector['app.kubernetes.io/component'] = 'wroker'],
  ['no port helth in its pods', (c) => c.service.spec.ports[0].targetPort = 'helth'],
  ['port 7081 is 7080 in its pods', (c) => c.service.spec.ports[0].port = 7081],
  ['Service weft-coordinator: has no ports',
   (c) => delete c.named('Service', 'weft-coordinator').spec.ports],
  ['its selector is not its pods\'',
   (c) => c.worker.spec.template.metadata.labels['app.kubernetes.io/component'] = 'x'],
  ['no Service weft-wroker', (c) => c.worker.spec.serviceName = 'weft-wroker'],
  ['Service weft-worker gives its pods no names',
   (c) => delete c.service.spec.clusterIP],
  ['Service weft-worker gives its pods no names',
   (c) => delete c.service.spec.publishNotReadyAddresses],
  ['Service weft-coordinator gives its pods no names',
   (c) => c.coordinator.spec.serviceName = 'weft-coordinator'],
  ['Service weft-worker gives its pods no names',
   (c) => c.coordinator.spec.serviceName = 'weft-worker'],
  ['its pods wait for each other', (c) => delete c.worker.spec.podManagementPolicy],
  ['a changed manifest ends jobs', (c) => delete c.worker.spec.updateStrategy],
  ['more than one coordinator', (c) => c.coordinator.spec.replicas = 2],
  ['port 9999 is not declared',
   (c) => c.container.args.push('--http_address=0.0.0.0:9999')],
  ['nothing listens on 9100',
   (c) => c.container.ports.push({name: 'x', containerPort: 9100})],
  ['readinessProbe asks 7070', (c) => c.container.readinessProbe.grpc.port = 7070],
  ['livenessProbe asks for live',
   (c) => c.container.livenessProbe.grpc.service = 'live'],
  ['startupProbe asks undefined',
   (c) => c.container.startupProbe = {tcpSocket: {port: 7080}}],
  ['has no startupProbe', (c) => delete c.container.startupProbe],
  ['has no readinessProbe', (c) => delete c.container.readinessProbe],
  ['container coordinator: has no livenessProbe',
   (c) => delete c.coordinator.spec.template.spec.containers[0].livenessProbe],
  ['nobody is coordinator:7070',
   (c) => c.container.args.push('--coordinator=coordinator:7070')],
  ['requests and limits differ', (c) => c.container.resources.requests.cpu = '2'],
  ['its pod does not tolerate nodes with GPUs', (c) => delete c.spec.tolerations],
  ['image weft-worker:latest may be of any version',
   (c) => c.container.image = 'weft-worker:latest'],
  ['image registry:5000/weft-worker may be of any version',
   (c) => c.container.image = 'registry:5000/weft-worker'],
  ['has no preStop', (c) => delete c.container.lifecycle],
  ['take longer than the pod\'s grace', (c) => c.container.args.push('--grace=54s')],
  ['take longer than the pod\'s grace', (c) => c.container.args.push('--grace=2m')],
  ['--grace=2 is no duration', (c) => c.container.args.push('--grace=2')],
  ['no volume dta', (c) => c.container.volumeMounts[1].name = 'dta'],
  ['cannot write /dev/shm',
   (c) => c.container.volumeMounts =
       c.container.volumeMounts.filter(({name}) => name !== 'shm')],
  ['volume shm is mounted nowhere',
   (c) => c.container.volumeMounts =
       c.container.volumeMounts.filter(({name}) => name !== 'shm')],
  ['/dev/shm is not in memory',
   (c) => delete c.spec.volumes.find(({name}) => name === 'shm').emptyDir.medium],
  ['container coordinator: cannot write /var/lib/weft/state',
   (c) => c.coordinator.spec.template.spec.containers[0].volumeMounts[0].readOnly =
       true],
  ['/var/lib/weft/artifacts is not the coordinator\'s',
   (c) => c.container.volumeMounts[0].mountPath = '/var/lib/weft/artefacts'],
  ['no ServiceAccount weft', (c) => c.spec.serviceAccountName = 'weft'],
  ['no claim weft-dta',
   (c) => c.spec.volumes[1].persistentVolumeClaim.claimName = 'weft-dta'],
  ['no ConfigMap weft',
   (c) => c.spec.volumes.push({name: 'c', configMap: {name: 'weft'}})],
  ['is in namespace other', (c) => c.worker.metadata.namespace = 'other'],
  ['Namespace weft: is in namespace weft',
   (c) => c.namespace.metadata.namespace = 'weft'],
  ['PodDisruptionBudget weft-worker: lets a pod be evicted that works',
   (c) => c.named('PodDisruptionBudget', 'weft-worker').spec.maxUnavailable = 1],
  ['PodDisruptionBudget weft-coordinator: lets a pod be evicted that works',
   (c) => delete c.named('PodDisruptionBudget', 'weft-coordinator').spec.minAvailable],
  ['no pod has a port metrics-9',
   (c) => c.monitor.spec.podMetricsEndpoints[0].port = 'metrics-9'],
  ['port metrics-7 is not scraped', (c) => c.monitor.spec.podMetricsEndpoints.pop()],
  ['PodMonitor weft-worker: has no label of Weft',
   (c) => delete c.monitor.metadata.labels],
  ['PrometheusRule weft: has no label of Weft',
   (c) => delete c.named('PrometheusRule', 'weft').metadata.labels],
];

// What the restricted profile and a read-only root forbid.
const SECURITY = [
  ['may run as root', (c) => delete c.spec.securityContext.runAsNonRoot],
  ['may run as root', (c) => c.container.securityContext.runAsNonRoot = false],
  ['has no user', (c) => delete c.spec.securityContext.runAsUser],
  ['has no user', (c) => c.container.securityContext.runAsUser = 0],
  ['has no seccomp profile', (c) => delete c.spec.securityContext.seccompProfile],
  ['has no seccomp profile',
   (c) => c.container.securityContext.seccompProfile = {type: 'Unconfined'}],
  ['sets securityContext.procMount',
   (c) => c.container.securityContext.procMount = 'Unmasked'],
  ['sets securityContext.sysctls',
   (c) => c.spec.securityContext.sysctls = [{name: 'kernel.msgmax', value: '1'}]],
  ['hostNetwork', (c) => c.spec.hostNetwork = true],
  ['gets a token', (c) => delete c.spec.automountServiceAccountToken],
  ['volume logs is of a kind not allowed',
   (c) => c.spec.volumes.push({name: 'logs', hostPath: {path: '/var/log'}})],
  ['may escalate privileges',
   (c) => delete c.container.securityContext.allowPrivilegeEscalation],
  ['is privileged', (c) => c.container.securityContext.privileged = true],
  ['its root can be written',
   (c) => delete c.container.securityContext.readOnlyRootFilesystem],
  ['keeps capabilities',
   (c) => c.container.securityContext.capabilities.add = ['IPC_LOCK']],
  ['takes port 80 of the host', (c) => c.container.ports[0].hostPort = 80],
  ['does not enforce the restricted profile',
   (c) => delete c.namespace.metadata.labels['pod-security.kubernetes.io/enforce']],
];

const everyone = {
  apiVersion: 'networking.k8s.io/v1',
  kind: 'NetworkPolicy',
  metadata: {name: 'everyone', namespace: 'weft'},
};

const NETWORK = [
  ['no NetworkPolicy denies', (c) => c.deny.spec.policyTypes.pop()],
  ['a peer finds no pod',
   (c) => c.policy.spec.ingress[0].from[0].podSelector
              .matchLabels['app.kubernetes.io/component'] = 'wroker'],
  ['no pod has a port gprc', (c) => c.policy.spec.ingress[0].ports[0].port = 'gprc'],
  ['a rule names no peers or no ports', (c) => delete c.policy.spec.ingress[0].from],
  ['a rule names no peers or no ports', (c) => delete c.ranks.spec.egress[0].ports],
  ['a peer is no pod',
   (c) => c.policy.spec.ingress[0].from.push({ipBlock: {cidr: '0.0.0.0/0'}})],
  ['monitoring to StatefulSet weft-worker (worker), TCP 9090: are refused',
   (c) => c.ranks.spec.ingress[1].ports =
       [{protocol: 'TCP', port: 9190, endPort: 9197}]],
  ['monitoring to StatefulSet weft-worker (worker), TCP 9098: are allowed',
   (c) => c.ranks.spec.ingress[1].ports[0].endPort = 9098],
  ['(worker) to StatefulSet weft-coordinator (coordinator), TCP 7070: are refused',
   (c) => c.ranks.spec.egress[0].ports[0].port = 7077],
  ['a client to StatefulSet weft-coordinator (coordinator), TCP 7070: are refused',
   (c) => c.named('NetworkPolicy', 'weft-client').spec.egress[0].ports[0].port = 7077],
  ['monitoring to StatefulSet weft-coordinator (coordinator), TCP 7071: are refused',
   (c) => c.policy.spec.policyTypes = ['Egress']],
  ['(worker) to StatefulSet weft-worker (worker), TCP 1024: are refused',
   (c) => c.ranks.spec.ingress[0].ports[0].port = 1025],
  ['(coordinator) to DNS, UDP 53: are refused',
   (c) => remove(c.objects, c.named('NetworkPolicy', 'weft-dns'))],
  ['(worker) to kube-system, TCP 53: are allowed',
   (c) => delete c.named('NetworkPolicy', 'weft-dns').spec.egress[0].to[0].podSelector],
  ['namespace default to StatefulSet weft-worker (worker)',
   (c) => c.objects.push({
     ...everyone,
     spec: {
       podSelector: {},
       policyTypes: ['Ingress'],
       ingress: [{from: [{namespaceSelector: {}}], ports: [{port: 9090}]}],
     },
   })],
  ['namespace default to StatefulSet weft-coordinator (coordinator), TCP 7071',
   (c) => c.policy.spec.ingress[1].from[0].namespaceSelector = {}],
];

for (const [message, spoil] of [...BREAKS, ...SECURITY, ...NETWORK]) {
  test(`what does not fit is found: ${message}`, () => {
    const objects = render('overlays/multi-node');
    spoil(partsOf(objects));
    const found = violationsOf(objects);
    assert.ok(found.some((line) => line.includes(message)), found.join('\n'));
  });
}

// What breaks an example: its objects, the workload, its job and pod.
const EXAMPLES = [
  ['examples/indexed-job', 'Job weft-run: a Job has no deadline',
   ({job}) => delete job.activeDeadlineSeconds],
  ['examples/indexed-job', 'it needs minAvailable, a number',
   ({budget}) => {
     delete budget.spec.minAvailable;
     budget.spec.maxUnavailable = 0;
   }],
  ['examples/indexed-job', 'lets a pod be evicted that works',
   ({budget}) => budget.spec.minAvailable = 1],
  ['examples/indexed-job', 'container worker: lifecycle differ from the StatefulSet\'s',
   ({pod}) => delete pod.initContainers[0].lifecycle],
  ['examples/indexed-job', 'container worker: flags differ from the StatefulSet\'s',
   ({pod}) => pod.initContainers[0].args.pop()],
  ['examples/indexed-job', 'pod\'s tolerations differ from the StatefulSet\'s',
   ({pod}) => delete pod.tolerations],
  ['examples/indexed-job', 'no ConfigMap weft-jbo',
   ({pod}) => pod.volumes.find(({name}) => name === 'job').configMap.name = 'weft-jbo'],
  ['examples/kubeflow-trainer', 'ClusterTrainingRuntime weft: is in namespace weft',
   ({objects}) => objects.find((o) => o.kind === 'ClusterTrainingRuntime')
                      .metadata.namespace = 'weft'],
  ['examples/kubeflow-trainer', 'no ClusterTrainingRuntime wfet',
   ({objects}) =>
       objects.find((o) => o.kind === 'TrainJob').spec.runtimeRef.name = 'wfet'],
  ['examples/jobset', 'nobody is weft-run-coordinator-0-0.weft-run:7070',
   ({objects}) =>
       objects.find((o) => o.kind === 'JobSet').spec.network.subdomain = 'x'],
];

for (const [example, message, spoil] of EXAMPLES) {
  test(`what does not fit is found in ${example}: ${message}`, () => {
    const objects = render(example);
    const job = objects.find((o) => o.kind === 'Job')?.spec;
    const budget = objects.find(
        (o) => o.kind === 'PodDisruptionBudget' && o.metadata.name === 'weft-worker');
    spoil({objects, job, pod: job?.template.spec, budget});
    const found = violationsOf(objects);
    assert.ok(found.some((line) => line.includes(message)), found.join('\n'));
  });
}
