#!/usr/bin/env bash
# Train a small MoE model on real text, from nothing, on a cluster of its own.

DEMO_WORKERS=4
DEMO_JOB=examples/moe_text.yaml
# Nats a byte by which validation must beat the bigram entropy.
DEMO_MARGIN=0.4

# Tears down the demo's cluster, however the demo ends.
end_demo() {
  local code=$?
  trap - EXIT
  if ((code > 128)); then say "interrupted; stopping the demo's cluster"; fi
  stop_cluster "$WEFT_STATE/demo" || true
  exit "$code"
}

# value FILE FILTER: a number of a JSON file; fails when it is not there.
value() { jq -er "$2 // empty" "$1"; }

# below LIMIT VALUE MARGIN: how far below the limit the value is; fails when it
# is less than the margin.
below() {
  awk -v limit="$1" -v value="$2" -v margin="$3" \
    'BEGIN { printf "%.3f", limit - value; exit !(limit - value >= margin) }'
}

# summarize_demo JOB-JSON TEXT-JSON: fails when the model did not learn enough.
summarize_demo() {
  local job="$1" text="$2" validation unigram bigram gap rc=0
  validation="$(value "$job" .last_eval.loss)" ||
    die "the job did not validate: eval.batches is 0 in $DEMO_JOB"
  unigram="$(value "$text" .unigram_entropy)"
  bigram="$(value "$text" .bigram_conditional_entropy)"
  gap="$(below "$bigram" "$validation" "$DEMO_MARGIN")" || rc=1

  echo
  jq -r '"\(.spec.name): \(.step) steps of \(.last_step.tokens) tokens in " +
    "\(.last_step.elapsed_seconds | round) seconds; in the last step " +
    (if .last_step.ep_seconds > 0 then
      (100 * (1 - .last_step.ep_exposed_seconds / .last_step.ep_seconds) |
        round | tostring) + "% of the all-to-all time was hidden"
    else "there was no all-to-all" end)' "$job"
  echo
  printf '  %-26s %6.3f nats a byte, first step\n' 'training loss' \
    "$(value "$job" .first_step.loss)"
  printf '  %-26s %6.3f nats a byte, last step\n' '' \
    "$(value "$job" .last_step.loss)"
  printf '  %-26s %6.3f nats a byte, on held-out text\n' 'validation loss' \
    "$validation"
  printf '  %-26s %6.3f nats a byte, of the text\n' 'unigram entropy' "$unigram"
  printf '  %-26s %6.3f nats a byte, of the text\n' \
    'bigram conditional entropy' "$bigram"
  echo
  if ((rc == 0)); then
    echo "  The model beats the bigram entropy by $gap nats a byte" \
      "(at least $DEMO_MARGIN wanted)."
  else
    echo "  FAILED: validation is $gap nats a byte below the bigram entropy;" \
      "at least $DEMO_MARGIN was wanted."
  fi
  return "$rc"
}

next_steps() {
  local artifacts
  artifacts="$(jq -r .artifacts "$1")"
  cat <<NEXT

Artifacts: $artifacts
  parameters/              the trained model, a safetensors file a rank
  trace.step-*.json        a measured step; open it in Perfetto
  steps.*.jsonl            every step in numbers
Logs: $WEFT_STATE/demo

What to try next:
  ./weft ctl plan -f $DEMO_JOB --timeline \\
      --set model.num_layers=1 --set batch.global_batch=32
      how microbatches are woven: a step of two, of one layer
  ./weft ctl plan -f $DEMO_JOB | less
      every op of a step and what it waits for
  ./weft up --workers 4
  ./weft ctl submit -f $DEMO_JOB --wait --set schedule.order=sequential
      the same job, nothing woven: the same losses, bit for bit
  ./weft ctl params diff $artifacts .weft/up/artifacts/JOB
      and the same parameters; JOB is the job that this submit names
  ./weft down
NEXT
}

run_demo() {
  local folder="$1" address job
  say "starting a coordinator and $DEMO_WORKERS workers"
  start_cluster "$folder" "$DEMO_WORKERS" cpu || die "the cluster did not come up"
  address="$(address_of "$folder")"
  job="$(weftctl --coordinator="$address" submit -f "$DEMO_JOB" -o name)"
  say "submitted $DEMO_JOB as job $job; status at" \
    "http://$(jq -r .http "$folder/ports.json")/"
  weftctl --coordinator="$address" watch "$job" ||
    die "the job did not succeed; logs are in $folder"
  weftctl --coordinator="$address" get job "$job" -o json >"$folder/job.json"
}

weft_demo() {
  source scripts/cluster.sh
  if (($# > 0)); then
    echo "usage: ./weft demo" >&2
    exit 2
  fi
  local folder="$WEFT_STATE/demo" rc=0
  mkdir -p "$WEFT_STATE"
  exec 9>"$WEFT_STATE/demo.lock"
  flock -n 9 || die "a demo is running already"
  build_cluster cpu
  if cluster_is_up "$folder"; then stop_cluster "$folder" || true; fi
  rm -rf "$folder"
  mkdir -p "$folder"
  prepare_text
  trap end_demo EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  run_demo "$folder"
  summarize_demo "$folder/job.json" "$WEFT_STATE/data/bible.json" || rc=1
  next_steps "$folder/job.json"
  return "$rc"
}
