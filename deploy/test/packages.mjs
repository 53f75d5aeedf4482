// npm packages, which ./weft manifests installs outside of the tree's
// sources, and the tree itself.
import {spawnSync} from 'node:child_process';
import {createRequire} from 'node:module';
import {dirname, join, resolve} from 'node:path';
import {fileURLToPath, pathToFileURL} from 'node:url';

export const TREE = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
export const BINARIES = process.env.WEFT_BINARIES ?? join(TREE, 'bazel-bin');
export const KUSTOMIZE = join(TREE, 'deploy/kustomize');

const require = createRequire(join(TREE, '.weft/npm/'));

export const yaml = require('js-yaml');
export const grpc = require('@grpc/grpc-js');
export const kubernetes = await import(
    pathToFileURL(require.resolve('@kubernetes/client-node')));

// Runs a command to its end; returns what it printed. Throws when it fails.
export function run(command, args, options = {}) {
  const result = spawnSync(command, args, {encoding: 'utf8', ...options});
  if (result.status === 0) return result.stdout;
  throw new Error(`${command} ${args.join(' ')}: ${
      result.error?.message ?? `code ${result.status}: ${result.stderr}`}`);
}

const CHECK = '/grpc.health.v1.Health/Check';
const STATUS = {1: 'SERVING', 2: 'NOT_SERVING', 3: 'SERVICE_UNKNOWN'};

// What the standard health service at `address` says of `service`, asked as
// the kubelet asks it: a status, or the error of the call by its name.
export function probe(address, service, timeoutSeconds = 1) {
  const client = new grpc.Client(
      address, grpc.credentials.createInsecure(),
      {'grpc.enable_http_proxy': 0});
  // HealthCheckRequest.service and HealthCheckResponse.status are fields 1.
  const name = Buffer.from(service);
  const request = Buffer.concat([Buffer.from([0x0a, name.length]), name]);
  return new Promise((done) => {
    client.makeUnaryRequest(
        CHECK, (bytes) => bytes, (bytes) => STATUS[bytes[1]], request,
        {deadline: Date.now() + timeoutSeconds * 1000}, (error, status) => {
          client.close();
          done(error ? grpc.status[error.code] : status);
        });
  });
}
