// Each command of the command line, as a process of its own. Needs what
// client.test.mjs needs.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {after, test} from 'node:test';
import {fileURLToPath} from 'node:url';

import grpc from '@grpc/grpc-js';

import {api, connect} from './client.mjs';
import {setting, tinyJob} from './test_jobs.mjs';

const CLI = fileURLToPath(new URL('cli.mjs', import.meta.url));
const COORDINATOR = setting('WEFT_COORDINATOR');

const client = connect(COORDINATOR);
const folder = mkdtempSync(join(tmpdir(), 'weft-cli-'));
after(() => {
  client.close();
  rmSync(folder, {recursive: true});
});

function fileOf(job) {
  const path = join(folder, 'job.json');
  writeFileSync(path, JSON.stringify(job));
  return path;
}

// A command that runs: what it has said so far, and its end.
class Command {
  out = '';
  error = '';

  constructor(...args) {
    this.child = spawn(process.execPath, [CLI, ...args]);
    this.child.stdout.on('data', (data) => this.out += data);
    this.child.stderr.on('data', (data) => this.error += data);
    this.ended = once(this.child, 'close').then(([code]) => code);
  }

  // Until it has said what fits; fails when it ends before.
  async says(pattern) {
    while (!pattern.test(this.out)) {
      const said = once(this.child.stdout, 'data').then(() => undefined);
      const code = await Promise.race([said, this.ended]);
      assert.equal(code, undefined, this.out + this.error);
    }
    return this.out.match(pattern);
  }
}

test('submit follows a job to its end', async () => {
  const command = new Command(COORDINATOR, 'submit', fileOf(tinyJob(3)));
  assert.equal(await command.ended, 0, command.error);
  assert.match(command.out, /^submitted \S+$/m);
  assert.match(command.out, /^succeeded/m);
});

test('watch shows a job that cancel ends', async () => {
  const job = await client.submit(tinyJob(1000000));
  const watch = new Command(COORDINATOR, 'watch', job.id);
  await watch.says(/^step \d+ {2}loss \d/m);
  const cancel = new Command(COORDINATOR, 'cancel', job.id, 'seen enough');
  assert.equal(await cancel.ended, 0, cancel.error);
  assert.equal(await watch.ended, 1, watch.error);
  assert.match(watch.out, /^cancelled .*seen enough/m);
});

test('an interrupt cancels the job that was submitted', async () => {
  const command = new Command(COORDINATOR, 'submit', fileOf(tinyJob(1000000)));
  const [, id] = await command.says(/^submitted (\S+)$/m);
  await command.says(/^step/m);
  command.child.kill('SIGINT');
  assert.equal(await command.ended, 1, command.error);
  assert.match(command.out, /^cancelled .*interrupted/m);
  assert.equal((await client.get(id)).state, 'JOB_STATE_CANCELLED');
});

// A coordinator whose job ends at the moment it is to be cancelled.
async function startEndingCoordinator(t) {
  const server = new grpc.Server();
  t.after(() => server.forceShutdown());
  let watch;
  server.addService(api.weft.v1.JobService.service, {
    SubmitJob: (call, answer) => answer(null, {job: {id: 'short'}}),
    WatchJob: (stream) => {
      watch = stream;
      stream.write({event: {state: 'JOB_STATE_RUNNING', message: 'runs'}});
    },
    CancelJob: (call, answer) => {
      answer({code: grpc.status.FAILED_PRECONDITION, details: 'it has ended'});
      watch.write({snapshot: {state: 'JOB_STATE_SUCCEEDED'}});
      watch.end();
    },
  });
  const port = await new Promise((done, failed) => {
    server.bindAsync(
        '127.0.0.1:0', grpc.ServerCredentials.createInsecure(),
        (error, bound) => error ? failed(error) : done(bound));
  });
  return `127.0.0.1:${port}`;
}

test('an interrupt of a job that has just ended is no failure of its', async (t) => {
  const command =
      new Command(await startEndingCoordinator(t), 'submit', fileOf(tinyJob(1)));
  await command.says(/^running/m);
  command.child.kill('SIGINT');
  assert.equal(await command.ended, 0, command.error);
  assert.match(command.out, /^succeeded/m);
  assert.equal(command.error, 'error: it has ended\n');
});

test('an error is one that a person can read', async () => {
  const refused = new Command(
      COORDINATOR, 'submit', fileOf({...tinyJob(1), parallel: {world: 1, ep: 3}}));
  assert.equal(await refused.ended, 1);
  assert.match(refused.error, /^error: /);
  assert.match(refused.error, /^ {2}parallel\.ep: /m);
  const unknown = new Command(COORDINATOR, 'cancel', 'no-such-job');
  assert.equal(await unknown.ended, 1);
  assert.match(unknown.error, /^error: .*no-such-job/);
  const wrong = new Command(COORDINATOR, 'sumbit', 'x');
  assert.equal(await wrong.ended, 2);
  assert.match(wrong.error, /^usage: /);
  for (const {error} of [refused, unknown, wrong]) {
    assert.doesNotMatch(error, /^ {4}at /m);
  }
});
