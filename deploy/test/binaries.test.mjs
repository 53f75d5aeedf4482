// What the manifests say to the binaries is what these know: flags, subcommands
// and the services that probes ask for. Run by `./weft manifests`.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {test} from 'node:test';

import {binaryOf, containersOf, podTemplatesOf, probesOf} from './objects.mjs';
import {OVERLAYS, render} from './overlays.mjs';
import {BINARIES, probe, run} from './packages.mjs';

// Containers of all overlays whose command is this binary.
function containersOfBinary(binary) {
  return OVERLAYS.flatMap(render)
      .flatMap((o) => podTemplatesOf([o]))
      .flatMap(({spec}) => containersOf(spec))
      .filter((container) => binaryOf(container) === binary);
}

const BUILT = {
  coordinator: join(BINARIES, 'coordinator/coordinator'),
  worker: join(BINARIES, 'worker/worker'),
  weftctl: join(BINARIES, 'client/weftctl'),
};

// The options that a command's help lists.
function optionsOf(binary, subcommand) {
  const help = run(BUILT[binary], [...subcommand, '--help']);
  return new Set([...help.matchAll(/^ {2}(-\S+)/gm)].flatMap(
      ([, names]) => names.split(',')));
}

// The options of a container that its command does not have. Those before a
// subcommand are the binary's own.
function unknownOptions(container) {
  const binary = binaryOf(container);
  const {args} = container;
  const end = args.findIndex((arg) => !arg.startsWith('-'));
  const own = end < 0 ? args : args.slice(0, end);
  const rest = end < 0 ? [] : args.slice(end + 1);
  const unknown = (list, subcommand) => {
    const known = optionsOf(binary, subcommand);
    return list.filter((arg) => !known.has(arg.split('=')[0]));
  };
  return [
    ...unknown(own, []), ...(end < 0 ? [] : unknown(rest, [args[end]]))
  ];
}

for (const binary of Object.keys(BUILT)) {
  test(`the options of the manifests are the ${binary}'s`, () => {
    const containers = containersOfBinary(binary);
    assert.ok(containers.length > 0);
    for (const container of containers) {
      assert.deepEqual(unknownOptions(container), []);
      const copy = structuredClone(container);
      const last = copy.args.pop();
      copy.args.push(last.replace(/^--\w/, '$&$&'));
      assert.equal(unknownOptions(copy).length, 1, copy.args.join(' '));
    }
  });
}

// Starts a daemon on free ports; returns where its health service is.
function start(binary, args, addressIn, t) {
  const folder = mkdtempSync(join(tmpdir(), 'weft-'));
  const child = spawn(BUILT[binary], args(folder), {cwd: folder});
  t.after(() => {
    child.kill('SIGKILL');
    rmSync(folder, {recursive: true, force: true});
  });
  return new Promise((found, failed) => {
    let log = '';
    child.stderr.on('data', (data) => {
      log += data;
      const match = log.match(addressIn);
      if (match) found(match[1]);
    });
    child.on('exit', (code) => failed(new Error(`${binary}: ${code}\n${log}`)));
  });
}

test('the names that probes ask for exist in the binaries', async (t) => {
  const addresses = {
    coordinator: await start(
        'coordinator',
        (folder) =>
            ['--listen_address=127.0.0.1:0', '--http_address=',
             `--state_dir=${folder}`, `--artifacts_dir=${folder}`],
        / grpc=(\S+)/, t),
    worker: await start(
        'worker',
        () => ['--coordinator=127.0.0.1:1', '--http_address=',
               '--health_address=127.0.0.1:0'],
        / health=(\S+)/, t),
  };
  for (const [binary, address] of Object.entries(addresses)) {
    const services = new Set(containersOfBinary(binary).flatMap(
        (c) => probesOf(c).map(([, grpc]) => grpc.service)));
    assert.ok(services.size >= 3);
    for (const service of services) {
      assert.match(await probe(address, service, 10), /^(NOT_)?SERVING$/, service);
    }
    assert.equal(await probe(address, 'no-such', 10), 'NOT_FOUND');
  }
});
