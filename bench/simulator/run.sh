#!/usr/bin/env bash
# How near the simulator comes to jobs on this machine: step time and peak memory
# of 20 configurations, predicted with costs calibrated on other jobs, beside what
# was measured. Prints everything; wants a machine with nothing else running.
#
#   bench/simulator/run.sh [FOLDER]     # FOLDER, .weft/simulator, keeps the jobs
#
# WEFT_BINARIES names a folder with coordinator/coordinator, worker/worker and
# client/weftctl, as bazel-bin has them: then nothing is installed or built, and
# the machine needs bash, jq, setsid and the libraries of the binaries. It also
# needs the text in .weft/data, bible.bin and bible.idx, or Debian's `bible` to
# make them of.
#
# All jobs run in turn, several rounds of it, so that a machine that is slower
# for a while is so for all of them. Each run has a traced step to calibrate
# with. Step time is the median over the steps of all runs of a job but the
# first of each. Peak memory is measured by workers that hand dead memory back to
# the system: the pages of the arena that were resident after any op of a step,
# and what the device handed out beside the arena.
set -euo pipefail

WEFT_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
export WEFT_ROOT
cd "$WEFT_ROOT"
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
# shellcheck source=scripts/cluster.sh
source scripts/cluster.sh

WORKERS=2
ROUNDS=3
STEPS=12
TRACE_STEP=8
MEMORY_STEPS=3

# Columns: world ep order delay_wgrad strategy layers hidden heads experts top_k
# expert_hidden shared_expert_hidden sequence_length microbatch microbatches
calibration_jobs() {
  cat <<'END'
1 1 sequential    false no_shard           2 128 4  4 2 128   0 256 1 2
1 1 combined_1f1b true  optim_grads_params 3 256 4  8 2 256 128 128 4 3
1 1 combined_1f1b false optim_grads        2 192 6 16 4 128   0 256 2 4
1 1 sequential    true  optim              4 128 4  8 2 384 256 512 1 2
1 1 sequential    false optim_grads_params 1 384 6  4 1 512   0 256 2 2
2 1 sequential    false no_shard           2 192 6  8 2 256   0 256 1 2
2 2 combined_1f1b true  optim_grads_params 3 128 4  8 2 256 128 256 2 4
2 2 combined_1f1b false optim_grads        2 256 8 16 4 128   0 128 4 3
2 1 combined_1f1b true  optim              4 192 6  4 2 384 192 256 2 2
2 2 sequential    true  optim_grads_params 2 384 6  8 2 256   0 512 1 2
1 1 sequential    false optim_grads        2 192 6 32 2 192 192 256 2 1
1 1 combined_1f1b false optim_grads_params 4 160 5 16 2 192   0 256 1 3
1 1 combined_1f1b true  no_shard           3 384 6  4 2 192   0 128 2 2
1 1 sequential    true  optim_grads_params 5 160 5  8 3 160   0 128 2 3
2 1 sequential    false optim_grads        2 192 6 32 2 160   0 256 2 1
2 1 combined_1f1b false optim_grads_params 3 320 5 16 2 192   0 256 1 2
2 2 sequential    false optim              2 320 5  8 2 448   0 256 2 2
2 2 combined_1f1b true  no_shard           3 160 5  8 2 192 160 256 1 4
END
}

predicted_jobs() {
  cat <<'END'
1 1 sequential    false optim_grads_params 2 256 4  8 2 256   0 256 2 2
1 1 sequential    true  no_shard           3 192 6  4 2 256 128 256 1 4
1 1 combined_1f1b false optim_grads_params 4 128 4 16 2 192   0 256 2 3
1 1 combined_1f1b true  optim_grads        2 320 5  8 4 192 160 256 1 4
1 1 combined_1f1b true  optim              3 256 8  8 2 320   0 512 1 2
1 1 combined_1f1b false no_shard           5 128 4  4 2 256 128 128 4 4
1 1 sequential    false optim              2 384 6  8 2 384   0 128 4 2
1 1 combined_1f1b true  optim_grads_params 6 192 6  8 3 128   0 256 1 3
1 1 sequential    true  optim_grads        3 256 4 32 2 128 256 256 2 1
1 1 combined_1f1b true  no_shard           2 512 8  4 2 256   0 256 1 2
2 1 sequential    false optim_grads_params 2 256 4  8 2 256   0 256 2 2
2 2 sequential    true  optim_grads_params 3 192 6  8 2 256 128 256 1 4
2 2 combined_1f1b false optim_grads_params 4 128 4 16 2 192   0 256 2 3
2 2 combined_1f1b true  optim_grads        2 320 5  8 4 192 160 256 1 4
2 1 combined_1f1b true  optim              3 256 8  8 2 320   0 512 1 2
2 2 combined_1f1b false no_shard           5 128 4  4 2 256 128 128 4 4
2 2 sequential    false optim              2 384 6  8 2 384   0 128 4 2
2 2 combined_1f1b true  optim_grads_params 6 192 6  8 3 128   0 256 1 3
2 1 sequential    true  optim_grads        3 256 4 32 2 128 256 256 2 1
2 2 combined_1f1b true  no_shard           2 512 8  4 2 256   0 256 1 2
END
}

# submit ADDRESS NAME STEPS TRACE_STEP COLUMN...: runs a job to its end and prints
# its id.
submit() {
  local address="$1" name="$2" steps="$3" trace_step="$4"
  shift 4
  local global=$(($1 * ${14} * ${15}))
  weftctl --coordinator="$address" submit -f examples/moe_text.yaml --wait \
    -o name --set "name=$name" --set "data.prefix=$WEFT_STATE/data/bible" \
    --set "parallel.world=$1" --set "parallel.ep=$2" \
    --set "schedule.order=$3" --set "schedule.delay_wgrad=$4" \
    --set "fsdp.strategy=$5" --set "model.num_layers=$6" \
    --set "model.hidden_size=$7" --set "model.attention.num_heads=$8" \
    --set "model.attention.num_kv_heads=$8" \
    --set "model.attention.head_dim=$(($7 / $8))" \
    --set "model.moe.num_experts=$9" --set "model.moe.top_k=${10}" \
    --set "model.moe.top_k_normalization=raw" \
    --set "model.moe.expert_hidden_size=${11}" \
    --set "model.moe.shared_expert_hidden_size=${12}" \
    --set "data.sequence_length=${13}" --set "batch.microbatch=${14}" \
    --set "batch.global_batch=$global" --set "steps=$steps" \
    --set "output.trace_step=$trace_step" --set output.final_parameters=false \
    --set eval.batches=0 --set eval.every_steps=0 \
    --set optimizer.warmup_steps=1 2>/dev/null
}

# run_all ADDRESS PREFIX STEPS TRACE_STEP: the jobs of standard input; prints ids.
run_all() {
  local line n=0
  local -a columns
  while read -r line; do
    n=$((n + 1))
    read -r -a columns <<<"$line"
    submit "$1" "$(printf '%s%02d' "$2" "$n")" "$3" "$4" "${columns[@]}" \
      </dev/null
  done
}

# with_cluster FOLDER FUNCTION WORKER_FLAG...
with_cluster() {
  local folder="$1" work="$2" rc=0
  shift 2
  if cluster_is_up "$folder"; then stop_cluster "$folder" || true; fi
  rm -rf "$folder"
  start_cluster "$folder" "$WORKERS" cpu "$@" || return 1
  "$work" "$(address_of "$folder")" || rc=$?
  stop_cluster "$folder" || rc=1
  return "$rc"
}

measure_time() {
  local address="$1" round
  local -a calibrating=() predicted=()
  for ((round = 1; round <= ROUNDS; ++round)); do
    say "round $round of $ROUNDS: jobs to calibrate with, then jobs to predict"
    mapfile -t -O "${#calibrating[@]}" calibrating < <(
      calibration_jobs | run_all "$address" c "$STEPS" "$TRACE_STEP")
    mapfile -t -O "${#predicted[@]}" predicted < <(
      predicted_jobs | run_all "$address" p "$STEPS" "$TRACE_STEP")
  done
  weftctl --coordinator="$address" calibrate "${calibrating[@]}" \
    --out "$FOLDER/costs.json" || return 1
  say "the jobs it was calibrated with:"
  weftctl --coordinator="$address" simulate "${calibrating[@]}" \
    --costs "$FOLDER/costs.json"
  say "step time of other jobs:"
  weftctl --coordinator="$address" simulate "${predicted[@]}" \
    --costs "$FOLDER/costs.json"
}

measure_memory() {
  local address="$1"
  local -a predicted
  mapfile -t predicted < <(
    predicted_jobs | run_all "$address" m "$MEMORY_STEPS" "$MEMORY_STEPS")
  say "peak memory; times are of workers that measure it, and mean nothing:"
  weftctl --coordinator="$address" simulate "${predicted[@]}" \
    --costs "$FOLDER/costs.json"
}

FOLDER="${1:-$WEFT_STATE/simulator}"
mkdir -p "$FOLDER"
rm -f "$FOLDER/costs.json"
build_cluster cpu
if [[ ! -f "$WEFT_STATE/data/bible.idx" ]]; then prepare_text; fi
say "jobs to calibrate with:"
calibration_jobs
say "jobs to predict:"
predicted_jobs
with_cluster "$FOLDER/time" measure_time
with_cluster "$FOLDER/memory" measure_memory --released_memory=return \
  --measure_memory
