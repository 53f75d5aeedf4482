// Needs a coordinator with an idle worker, at WEFT_COORDINATOR, and a dataset of
// bytes with the prefix WEFT_DATA; `scripts/clients_check.sh` brings both.
import assert from 'node:assert/strict';
import {randomUUID} from 'node:crypto';
import {after, test} from 'node:test';

import {connect, violations} from './client.mjs';
import {setting, tinyJob} from './test_jobs.mjs';

const INVALID_ARGUMENT = 3;
const NOT_FOUND = 5;

const client = connect(setting('WEFT_COORDINATOR'));
after(() => client.close());

async function collect(jobId) {
  const updates = [];
  for await (const update of client.watch(jobId)) updates.push(update);
  return updates;
}

test('health answers for the process and for services by name', async () => {
  assert.equal(await client.health(), 'SERVING');
  assert.equal(await client.health('weft.v1.JobService'), 'SERVING');
  await assert.rejects(client.health('weft.v1.NoService'), {code: NOT_FOUND});
});

test('a job is submitted once and watched to its end', async () => {
  const requestId = randomUUID();
  const job = await client.submit(tinyJob(3), requestId);
  assert.equal((await client.submit(tinyJob(3), requestId)).id, job.id);
  const updates = await collect(job.id);
  assert.equal(updates[0].update, 'snapshot');
  const last = updates.at(-1).snapshot;
  assert.equal(last.state, 'JOB_STATE_SUCCEEDED', last.message);
  assert.equal(last.step, '3');
  // The watch may have begun with some of the steps behind it.
  const behind = Number(updates[0].snapshot.step);
  const steps = updates.filter(u => u.update === 'step').map(u => u.step);
  assert.deepEqual(
      steps.map(s => Number(s.step)), [1, 2, 3].slice(behind));
  for (const step of steps) {
    assert.ok(step.loss > 0 && step.loss < 10, `loss ${step.loss}`);
    assert.equal(step.tokens, '32');
  }
});

test('a running job is cancelled', async () => {
  const job = await client.submit(tinyJob(1000000));
  let asked = false;
  let last;
  for await (const update of client.watch(job.id)) {
    if (update.update === 'snapshot') last = update.snapshot;
    if (update.update !== 'step' || asked) continue;
    asked = true;
    await client.cancel(job.id, 'seen enough');
  }
  assert.ok(asked);
  assert.equal(last.state, 'JOB_STATE_CANCELLED');
  assert.match(last.message, /seen enough/);
  assert.equal((await client.get(job.id)).state, 'JOB_STATE_CANCELLED');
});

test('leaving a watch ends it', async () => {
  const job = await client.submit(tinyJob(1000000));
  for await (const update of client.watch(job.id)) {
    assert.equal(update.update, 'snapshot');
    break;
  }
  await client.cancel(job.id);
  assert.equal(
      (await collect(job.id)).at(-1).snapshot.state, 'JOB_STATE_CANCELLED');
});

test('a refused job says what is wrong with it, by field', async () => {
  const job = tinyJob(1);
  job.parallel.ep = 3;
  job.optimizer.learning_rate = -1;
  await assert.rejects(client.submit(job), error => {
    assert.equal(error.code, INVALID_ARGUMENT);
    const found = violations(error);
    const fields = found.map(violation => violation.field);
    assert.ok(fields.includes('parallel.ep'), fields.join());
    assert.ok(fields.includes('optimizer.learning_rate'), fields.join());
    for (const {description} of found) assert.notEqual(description, '');
    return true;
  });
});

test('workers are listed with what they own', async () => {
  const workers = await client.workers();
  assert.equal(workers.length, 1);
  assert.equal(workers[0].device, 'cpu');
});
