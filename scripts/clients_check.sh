#!/usr/bin/env bash
# Clients that have nothing but the .proto files: the one in Node.js, and any that
# asks for descriptions by reflection. Sourced by ./weft test.

NODE_CLIENT=examples/clients/node

# Makes sure that the packages of the Node.js client are there. Returns 1, saying
# why, when they cannot be had.
ensure_node_client() {
  if ! command -v npm >/dev/null; then
    say "foreign clients skipped: npm is not installed"
    return 1
  fi
  if ! (cd "$NODE_CLIENT" && npm ci --silent --no-audit --no-fund) \
    >"$WEFT_STATE/node-client.log" 2>&1; then
    say "foreign clients skipped: npm cannot install what $NODE_CLIENT needs," \
      "see .weft/node-client.log"
    return 1
  fi
}

# buf_curl ADDRESS METHOD [REQUEST]: calls a method that the server describes.
buf_curl() {
  "$BUF" curl --protocol grpc --http2-prior-knowledge --data "${3:-{\}}" \
    "http://$1/$2"
}

# check_reflection ADDRESS
check_reflection() {
  local answer
  answer="$(buf_curl "$1" grpc.health.v1.Health/Check \
    '{"service": "weft.v1.JobService"}')" || return
  if [[ "$(jq -r .status <<<"$answer")" != SERVING ]]; then
    echo "health says: $answer"
    return 1
  fi
  answer="$(buf_curl "$1" weft.v1.ClusterService/GetClusterInfo)" || return
  if [[ "$(jq -r .workers <<<"$answer")" != 1 ]]; then
    echo "the cluster says: $answer"
    return 1
  fi
  # An illegal call is answered by the rules, not by the client.
  if answer="$(buf_curl "$1" weft.v1.JobService/GetJob '{"jobId": "none"}' 2>&1)" ||
    [[ "$answer" != *not_found* ]]; then
    echo "GetJob of no job says: $answer"
    return 1
  fi
}

# run_node_client FOLDER: its tests, and one job by its command line.
run_node_client() {
  local folder="$1" address
  address="$(address_of "$folder")"
  if ! WEFT_COORDINATOR="$address" WEFT_DATA="$folder/data/text" \
    node --test "$NODE_CLIENT/client.test.mjs" >"$folder/node.txt" 2>&1; then
    cat "$folder/node.txt"
    return 1
  fi
  jq -n --arg prefix "$folder/data/text" '{name: "cli", steps: 2,
    model: {vocab_size: 256, hidden_size: 32, num_layers: 1,
      attention: {num_heads: 4, num_kv_heads: 2},
      moe: {num_experts: 4, top_k: 2, expert_hidden_size: 16}},
    data: {prefix: $prefix, sequence_length: 16}, parallel: {world: 1, ep: 1},
    batch: {microbatch: 1, global_batch: 1},
    optimizer: {learning_rate: 0.01}}' >"$folder/job.json"
  node "$NODE_CLIENT/cli.mjs" "$address" submit "$folder/job.json" \
    >"$folder/cli.txt" 2>&1 && grep -q '^succeeded' "$folder/cli.txt" && return 0
  echo "the command line says:"
  cat "$folder/cli.txt"
  return 1
}

# Runs them beside a cluster of one worker. Requires: ensure_node_client.
check_clients() {
  source scripts/cluster.sh
  local folder="$WEFT_STATE/clients" rc=0
  if cluster_is_up "$folder"; then stop_cluster "$folder" || true; fi
  rm -rf "$folder"
  mkdir -p "$folder/data"
  build_cluster cpu && start_cluster "$folder" 1 cpu || return 1
  weftctl data prepare --input README.md --output "$folder/data/text" \
    --tokenizer byte >/dev/null || rc=1
  run_node_client "$folder" || rc=1
  if ensure_buf; then check_reflection "$(address_of "$folder")" || rc=1; fi
  stop_cluster "$folder" || rc=1
  return "$rc"
}
