// A strict walk over Kubernetes objects: every field must be one that the type
// has, with a value of its type, and a word where it has a list of them. Core
// types are those of @kubernetes/client-node, without their lists of words, which
// are here, as are the few types of custom resources.
import {kubernetes} from './packages.mjs';

// A type of which these are all values.
const oneOf = (...words) => ({words});

const PROTOCOLS = ['TCP', 'UDP', 'SCTP'];

// Where a string of a core type is one of a few words.
const WORDS = {
  'V1Capabilities.drop': ['ALL'],
  'V1Container.imagePullPolicy': ['Always', 'IfNotPresent', 'Never'],
  'V1Container.restartPolicy': ['Always'],
  'V1ContainerPort.protocol': PROTOCOLS,
  'V1EmptyDirVolumeSource.medium': ['Memory'],
  'V1JobSpec.completionMode': ['Indexed', 'NonIndexed'],
  'V1LabelSelectorRequirement.operator':
      ['In', 'NotIn', 'Exists', 'DoesNotExist'],
  'V1NetworkPolicyPort.protocol': PROTOCOLS,
  'V1NetworkPolicySpec.policyTypes': ['Ingress', 'Egress'],
  'V1PersistentVolumeClaimSpec.accessModes':
      ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod'],
  'V1PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy':
      ['IfHealthyBudget', 'AlwaysAllow'],
  'V1PodSecurityContext.fsGroupChangePolicy': ['Always', 'OnRootMismatch'],
  'V1PodSpec.restartPolicy': ['Always', 'OnFailure', 'Never'],
  'V1SeccompProfile.type': ['RuntimeDefault', 'Localhost', 'Unconfined'],
  'V1ServicePort.protocol': PROTOCOLS,
  'V1ServiceSpec.clusterIP': ['None'],
  'V1StatefulSetSpec.podManagementPolicy': ['OrderedReady', 'Parallel'],
  'V1StatefulSetUpdateStrategy.type': ['RollingUpdate', 'OnDelete'],
  'V1Toleration.effect': ['NoSchedule', 'PreferNoSchedule', 'NoExecute'],
  'V1Toleration.operator': ['Exists', 'Equal'],
  'V1TopologySpreadConstraint.whenUnsatisfiable':
      ['DoNotSchedule', 'ScheduleAnyway'],
};

// The kinds that are used, of core types.
const CORE = {
  'v1': [
    'ConfigMap', 'Namespace', 'PersistentVolumeClaim', 'Service', 'ServiceAccount'
  ],
  'apps/v1': ['StatefulSet'],
  'batch/v1': ['Job'],
  'networking.k8s.io/v1': ['NetworkPolicy'],
  'policy/v1': ['PodDisruptionBudget'],
};

const POD_MONITOR = {
  selector: 'V1LabelSelector',
  podMetricsEndpoints: [{port: 'string', path: 'string', interval: 'string'}],
};

const JOB_TEMPLATE = {metadata: 'V1ObjectMeta', spec: 'V1JobSpec'};

const JOB_SET_SPEC = {
  network: {
    enableDNSHostnames: 'boolean',
    subdomain: 'string',
    publishNotReadyAddresses: 'boolean',
  },
  coordinator:
      {replicatedJob: 'string', jobIndex: 'number', podIndex: 'number'},
  successPolicy: {operator: oneOf('All', 'Any'), targetReplicatedJobs: ['string']},
  failurePolicy: {
    maxRestarts: 'number',
    restartStrategy: oneOf('Recreate', 'BlockingRecreate'),
  },
  replicatedJobs: [{
    name: 'string',
    replicas: 'number',
    dependsOn: [{name: 'string', status: oneOf('Ready', 'Complete')}],
    template: JOB_TEMPLATE,
  }],
};

const CUSTOM = {
  'monitoring.coreos.com/v1 PodMonitor': POD_MONITOR,
  'monitoring.coreos.com/v1 PrometheusRule': {
    groups: [{
      name: 'string',
      interval: 'string',
      rules: [{
        alert: 'string',
        record: 'string',
        expr: 'string',
        for: 'string',
        labels: {'*': 'string'},
        annotations: {'*': 'string'},
      }],
    }],
  },
  'jobset.x-k8s.io/v1alpha2 JobSet': JOB_SET_SPEC,
  'trainer.kubeflow.org/v1alpha1 ClusterTrainingRuntime': {
    mlPolicy: {numNodes: 'number'},
    template: {metadata: 'V1ObjectMeta', spec: JOB_SET_SPEC},
  },
  'trainer.kubeflow.org/v1alpha1 TrainJob': {
    runtimeRef: {
      apiGroup: oneOf('trainer.kubeflow.org'),
      kind: oneOf('TrainingRuntime', 'ClusterTrainingRuntime'),
      name: 'string',
    },
    suspend: 'boolean',
    trainer: {
      image: 'string',
      command: ['string'],
      args: ['string'],
      numNodes: 'number',
    },
  },
};

const INTEGERS = ['int32', 'int64'];

// The type of an object: a name of client-node, or a table of fields.
function typeOf(object) {
  const custom = CUSTOM[`${object.apiVersion} ${object.kind}`];
  if (custom !== undefined) {
    return {
      apiVersion: 'string',
      kind: 'string',
      metadata: 'V1ObjectMeta',
      spec: custom,
    };
  }
  return CORE[object.apiVersion]?.includes(object.kind) ? `V1${object.kind}` :
                                                          undefined;
}

// The fields of a type, as {name: type}; undefined for types without fields.
function fieldsOf(type) {
  if (typeof type === 'object') return type;
  const model = kubernetes[type];
  if (typeof model?.getAttributeTypeMap !== 'function') return undefined;
  return Object.fromEntries(model.getAttributeTypeMap().map(
      (field) => [field.baseName, typeOfField(type, field)]));
}

function typeOfField(owner, {baseName, type, format}) {
  const words = WORDS[`${owner}.${baseName}`];
  if (words !== undefined) {
    return type === 'Array<string>' ? [oneOf(...words)] : oneOf(...words);
  }
  return INTEGERS.includes(format) ? 'integer' : type;
}

const SCALARS = {
  'string': (value) => typeof value === 'string',
  'Date': (value) => typeof value === 'string',
  'boolean': (value) => typeof value === 'boolean',
  'number': (value) => typeof value === 'number',
  'integer': (value) => Number.isInteger(value),
  'IntOrString': (value) =>
      typeof value === 'string' || Number.isInteger(value),
  'any': () => true,
};

// Calls visit(path, kind) for every key and problem(path, what) for what is
// wrong. A key of a map is no field.
function walk(value, type, path, visit, problem) {
  const item = Array.isArray(type) ? type[0] : type.match?.(/^Array<(.*)>$/)?.[1];
  if (item !== undefined) {
    if (!Array.isArray(value)) return problem(path, 'is no list');
    value.forEach(
        (v, i) => walk(v, item, [...path, i], visit, problem));
    return;
  }
  if (type.words !== undefined) {
    if (!type.words.includes(value)) problem(path, `is none of ${type.words}`);
    return;
  }
  const mapped = type['*'] ?? type.match?.(/^{ \[key: string\]: (.*); }$/)?.[1];
  const fields = mapped === undefined ? fieldsOf(type) : undefined;
  if (mapped === undefined && fields === undefined) {
    const fits = SCALARS[type];
    if (fits === undefined) return problem(path, `has the unknown type ${type}`);
    if (!fits(value)) problem(path, `is no ${type}`);
    return;
  }
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    return problem(path, 'is no mapping');
  }
  for (const [key, child] of Object.entries(value)) {
    const where = [...path, key];
    if (fields !== undefined && !Object.hasOwn(fields, key)) {
      problem(where, 'is no field of its type');
      continue;
    }
    if (fields !== undefined) visit(where);
    walk(child, fields?.[key] ?? mapped, where, visit, problem);
  }
}

function walkObject(object, visit, problem) {
  const type = typeOf(object);
  if (type === undefined) {
    problem([], `is of an unknown kind, ${object.apiVersion} ${object.kind}`);
    return;
  }
  walk(object, type, [], visit, problem);
}

// What is wrong with an object, a line each.
export function problemsOf(object) {
  const problems = [];
  walkObject(
      object, () => {},
      (path, what) => problems.push(
          `${object.kind} ${object.metadata?.name}: ${path.join('.')} ${what}`));
  return problems;
}

// The paths of all fields of an object.
export function fieldPathsOf(object) {
  const paths = [];
  walkObject(object, (path) => paths.push(path), () => {});
  return paths;
}
