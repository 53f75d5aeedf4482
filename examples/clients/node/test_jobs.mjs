// Jobs that the tests submit, to the coordinator and with the data that
// `scripts/clients_check.sh` brings.

// A setting of the environment that the tests cannot do without.
export function setting(name) {
  const value = process.env[name];
  if (value) return value;
  throw new Error(`${name} is not set: see client.test.mjs`);
}

export function tinyJob(steps) {
  return {
    name: 'node',
    steps,
    model: {
      vocab_size: 256, hidden_size: 32, num_layers: 2,
      attention: {num_heads: 4, num_kv_heads: 2},
      moe: {num_experts: 4, top_k: 2, expert_hidden_size: 16},
    },
    data: {prefix: setting('WEFT_DATA'), sequence_length: 16},
    parallel: {world: 1, ep: 1},
    batch: {microbatch: 1, global_batch: 2},
    optimizer: {learning_rate: 0.01},
  };
}
