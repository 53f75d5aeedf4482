#!/usr/bin/env bash
# Clients that have nothing but the .proto files: the one in Node.js, and any that
# asks for descriptions by reflection. Sourced by ./weft test.

NODE_CLIENT=examples/clients/node

# Makes sure that the packages of the Node.js client are there. Returns 1, saying
# why, when they cannot be had.
ensure_node_client() {
  if ! command -v npm >/dev/null; then
    skip "foreign clients" "npm is not installed"
    return 1
  fi
  if ! (cd "$NODE_CLIENT" && npm ci --silent --no-audit --no-fund) \
    >"$WEFT_STATE/node-client.log" 2>&1; then
    skip "foreign clients" "npm cannot install what $NODE_CLIENT needs," \
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

# run_node_client FOLDER: its tests.
run_node_client() {
  local folder="$1"
  if ! (cd "$NODE_CLIENT" && WEFT_COORDINATOR="$(address_of "$folder")" \
    WEFT_DATA="$folder/data/text" npm test) >"$folder/node.txt" 2>&1; then
    cat "$folder/node.txt"
    return 1
  fi
}

# call_cluster FOLDER: all clients, beside the cluster there.
call_cluster() {
  local folder="$1" rc=0
  weftctl data prepare --input README.md --output "$folder/data/text" \
    --tokenizer byte >/dev/null || rc=1
  run_node_client "$folder" || rc=1
  if ensure_buf; then check_reflection "$(address_of "$folder")" || rc=1; fi
  return "$rc"
}

# Runs them beside a cluster of one worker. Requires: ensure_node_client.
check_clients() {
  source scripts/cluster.sh
  local folder="$WEFT_STATE/clients" rc=0
  if cluster_is_up "$folder"; then stop_cluster "$folder" || true; fi
  rm -rf "$folder"
  mkdir -p "$folder/data"
  build_cluster cpu || return
  if start_cluster "$folder" 1 cpu; then
    call_cluster "$folder" || rc=1
  else
    rc=1
  fi
  stop_cluster "$folder" || rc=1
  return "$rc"
}
