// A client of Weft's public API, made of its .proto files alone.
//
//   const client = connect('127.0.0.1:7070');
//   const job = await client.submit({name: 'mine', steps: 10, ...});
//   for await (const update of client.watch(job.id)) console.log(update);
//
// Fields are named as in the .proto files, enums by their names; 64-bit numbers
// are strings, as JavaScript's numbers hold 53 bits.
import {randomUUID} from 'node:crypto';
import {fileURLToPath} from 'node:url';

import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

const PROTOS = fileURLToPath(new URL('../../../proto', import.meta.url));

// All that the .proto files declare.
export const api = grpc.loadPackageDefinition(protoLoader.loadSync(
    ['weft/v1/job_service.proto', 'weft/v1/cluster_service.proto',
     'google/rpc/status.proto', 'google/rpc/error_details.proto',
     'grpc/health/v1/health.proto'],
    {includeDirs: [PROTOS], keepCase: true, longs: String, enums: String,
     oneofs: true, defaults: true}));

const CALL_SECONDS = 5;
// Calls that compile a plan.
const PLAN_SECONDS = 60;

// What is wrong with a refused job: [{field, description}]; empty for other
// errors.
export function violations(error) {
  const [bytes] = error.metadata?.get('grpc-status-details-bin') ?? [];
  if (bytes === undefined) return [];
  const {Status, BadRequest} = api.google.rpc;
  return Status.deserialize(bytes)
      .details.filter(any => any.type_url.endsWith('/google.rpc.BadRequest'))
      .flatMap(any => BadRequest.deserialize(any.value).field_violations);
}

// The calls of one coordinator.
class Client {
  #jobs;
  #cluster;
  #health;

  constructor(address) {
    const credentials = grpc.credentials.createInsecure();
    // A proxy of the environment is for the world outside.
    const options = {'grpc.enable_http_proxy': 0};
    this.#jobs = new api.weft.v1.JobService(address, credentials, options);
    this.#cluster = new api.weft.v1.ClusterService(address, credentials, options);
    this.#health = new api.grpc.health.v1.Health(address, credentials, options);
  }

  // Returns the queued job. Retries with the same id make no second job.
  async submit(job, requestId = randomUUID()) {
    const request = {request_id: requestId, job};
    return (await call(this.#jobs, 'SubmitJob', request, PLAN_SECONDS)).job;
  }

  async get(jobId) {
    return (await call(this.#jobs, 'GetJob', {job_id: jobId})).job;
  }

  async cancel(jobId, reason = '') {
    return (await call(this.#jobs, 'CancelJob', {job_id: jobId, reason})).job;
  }

  async workers() {
    return (await call(this.#cluster, 'ListWorkers', {})).workers;
  }

  // Updates of a job until it has ended: {revision, update: 'snapshot' |
  // 'event' | 'step' | 'eval', and the one of these names}. Leaving the loop
  // ends the call.
  async* watch(jobId, afterRevision = 0) {
    const request = {job_id: jobId, after_revision: afterRevision};
    const stream = this.#jobs.WatchJob(request);
    try {
      yield* stream;
    } finally {
      stream.cancel();
    }
  }

  // SERVING, NOT_SERVING or, of a service that there is not, an error.
  async health(service = '') {
    return (await call(this.#health, 'Check', {service})).status;
  }

  close() {
    for (const stub of [this.#jobs, this.#cluster, this.#health]) stub.close();
  }
}

function call(stub, method, request, seconds = CALL_SECONDS) {
  const deadline = Date.now() + 1000 * seconds;
  return new Promise((resolve, reject) => {
    stub[method](request, {deadline}, (error, response) => {
      if (error) reject(error); else resolve(response);
    });
  });
}

export const connect = (address) => new Client(address);
