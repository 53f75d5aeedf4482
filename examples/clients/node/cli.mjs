#!/usr/bin/env node
// node cli.mjs HOST:PORT submit JOB.json | watch JOB_ID | cancel JOB_ID [REASON]
//
// `submit` goes on to watch the job, and cancels it when it is interrupted. Exit
// status: 0 when the job has succeeded, 1 when not, 2 for a wrong command line.
import {readFile} from 'node:fs/promises';

import {connect, violations} from './client.mjs';

function show({update, ...message}) {
  if (update === 'step') {
    const {step, loss, tokens, step_seconds: seconds} = message.step;
    const rate = (Number(tokens) / seconds).toFixed(0);
    console.log(`step ${step}  loss ${loss.toFixed(4)}  ${rate} tokens/s`);
  } else if (update === 'eval') {
    console.log(`validation  loss ${message.eval.loss.toFixed(4)}`);
  } else {
    const {state, message: text} = message[update];
    console.log(`${state.replace('JOB_STATE_', '').toLowerCase()}  ${text}`);
  }
}

// Whether the job has succeeded.
async function watch(client, jobId) {
  let state;
  for await (const update of client.watch(jobId)) {
    show(update);
    state = update.snapshot?.state ?? state;
  }
  return state === 'JOB_STATE_SUCCEEDED';
}

// Says why a call failed: what is wrong with a refused job, field by field.
function report(error) {
  console.error(`error: ${error.details ?? error.message}`);
  for (const {field, description} of violations(error)) {
    console.error(`  ${field}: ${description}`);
  }
}

async function submit(client, path) {
  const job = await client.submit(JSON.parse(await readFile(path, 'utf8')));
  console.log(`submitted ${job.id}`);
  // The job may have ended in between.
  process.once('SIGINT', () => client.cancel(job.id, 'interrupted').catch(report));
  return watch(client, job.id);
}

async function main([address, command, argument, reason]) {
  const commands = {submit, watch,
    cancel: async client => Boolean(await client.cancel(argument, reason))};
  if (argument === undefined || !Object.hasOwn(commands, command)) {
    console.error('usage: node cli.mjs HOST:PORT ' +
        'submit JOB.json | watch JOB_ID | cancel JOB_ID [REASON]');
    return 2;
  }
  const client = connect(address);
  try {
    return await commands[command](client, argument) ? 0 : 1;
  } catch (error) {
    report(error);
    return 1;
  } finally {
    client.close();
  }
}

process.exitCode = await main(process.argv.slice(2));
