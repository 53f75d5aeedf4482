#!/usr/bin/env bash
# A coordinator and workers on this machine, for ./weft up, down and demo.
# Sourced, after lib.sh.
#
# A cluster lives in a folder: NAME.pid and NAME.log for `coordinator` and each
# `worker-N`, the coordinator's ports.json, its store in state/ and what jobs
# write in artifacts/.

CLUSTER_BINARIES=(//coordinator:coordinator //worker:worker //client:weftctl)

# The folder they are in, laid out as bazel-bin. One that is named by the
# environment is taken as it is: nothing is installed or built.
BINARIES="${WEFT_BINARIES:-$WEFT_ROOT/bazel-bin}"

# How long daemons may take.
CLUSTER_START_SECONDS=30
# Workers end within 20.
CLUSTER_STOP_SECONDS=25

# worker_for DEVICE: the binary that can own it.
worker_for() {
  if [[ "$1" == cpu ]]; then echo worker; else echo worker_cuda; fi
}

# build_cluster [DEVICE]
build_cluster() {
  if [[ -n "${WEFT_BINARIES:-}" ]]; then return; fi
  source scripts/weft_install.sh
  weft_install
  run_bazel build "${CLUSTER_BINARIES[@]}" "//worker:$(worker_for "${1:-cpu}")"
}

weftctl() { "$BINARIES/client/weftctl" "$@"; }

# Makes the dataset of the example jobs, .weft/data/bible, of Debian's King James
# Bible, and leaves its figures in bible.json.
prepare_text() {
  local folder="$WEFT_STATE/data"
  mkdir -p "$folder"
  say "preparing the text of the examples in .weft/data"
  bible -f 'gen1:1-rev22:21' </dev/null >"$folder/bible.txt"
  weftctl data prepare --input "$folder/bible.txt" --output "$folder/bible" \
    --tokenizer byte -o json >"$folder/bible.json"
}

# start_time PID: when a process began, in ticks; fails when there is none. With
# it a process is told from a later one that got the same number.
start_time() {
  local stat
  stat="$(cat "/proc/$1/stat" 2>/dev/null)" || return 1
  # Behind the name, which may hold blanks, it is the 20th field.
  read -r -a stat <<<"${stat##*) }"
  [[ "${stat[0]}" != Z ]] && echo "${stat[19]}"
}

# is_running PIDFILE
is_running() {
  local pid began now
  read -r pid began 2>/dev/null <"$1" && now="$(start_time "$pid")" &&
    [[ "$now" == "$began" ]]
}

# start_daemon FOLDER NAME COMMAND...: in a session of its own, so that an
# interrupt at the terminal is not for it.
start_daemon() {
  local folder="$1" name="$2"
  shift 2
  setsid "$@" >"$folder/$name.log" 2>&1 </dev/null 9>&- &
  local pid=$!
  disown "$pid"
  # One that has ended already has no time.
  echo "$pid $(start_time "$pid" || echo ended)" >"$folder/$name.pid"
}

# names_of FOLDER: the cluster's daemons, one a line, workers first.
names_of() {
  local pidfile
  for pidfile in "$1"/worker-*.pid "$1"/coordinator.pid; do
    if [[ -f "$pidfile" ]]; then basename "$pidfile" .pid; fi
  done
}

# cluster_is_up FOLDER: whether any daemon of it runs.
cluster_is_up() {
  local name
  for name in $(names_of "$1"); do
    if is_running "$1/$name.pid"; then return 0; fi
  done
  return 1
}

# Says what a daemon that has ended left in its log, and returns 1.
report_dead() {
  local folder="$1" name="$2"
  say "$name has ended; the last lines of $folder/$name.log:" >&2
  tail -n 20 "$folder/$name.log" >&2
  return 1
}

# wait_for_cluster FOLDER WHAT COMMAND...: runs the command until it succeeds.
# Returns 1, saying why, when a daemon ends or it takes too long.
wait_for_cluster() {
  local folder="$1" what="$2" name
  local deadline=$((SECONDS + CLUSTER_START_SECONDS))
  shift 2
  while ((SECONDS < deadline)); do
    if "$@"; then return 0; fi
    for name in $(names_of "$folder"); do
      is_running "$folder/$name.pid" || report_dead "$folder" "$name" || return
    done
    sleep 0.1
  done
  say "$what in $CLUSTER_START_SECONDS seconds; logs are in $folder" >&2
  return 1
}

# address_of FOLDER: host:port of the coordinator.
address_of() { jq -er .grpc "$1/ports.json" 2>/dev/null; }

has_address() { address_of "$1" >/dev/null; }

# has_workers ADDRESS N
has_workers() {
  local idle
  idle="$(weftctl --coordinator="$1" get workers -o json 2>/dev/null |
    jq '[.workers[] | select(.state == "WORKER_STATE_IDLE")] | length')"
  [[ "$idle" == "$2" ]]
}

# How many GPUs this machine has.
count_gpus() { nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true; }

# device_of DEVICE I: what worker I is told to own. GPUs are dealt out in turn.
device_of() {
  local gpus
  if [[ "$1" != cuda ]]; then
    echo "$1"
    return
  fi
  gpus="$(count_gpus)"
  if ((gpus == 0)); then die "--device=cuda: nvidia-smi finds no GPU here"; fi
  echo "cuda:$(($2 % gpus))"
}

# environment_of DEVICE WORKERS I: settings of worker I, one a line. NCCL takes
# two workers for one GPU only when they claim to be on different hosts.
environment_of() {
  # One thread a worker: its streams are threads already.
  echo OMP_NUM_THREADS=1
  if [[ "$1" == cuda ]] && (($2 > $(count_gpus))); then
    echo "NCCL_HOSTID=worker-$3"
    echo NCCL_SOCKET_IFNAME=lo
  fi
}

# start_cluster FOLDER WORKERS DEVICE [WORKER_FLAG...]: returns when all workers
# are attached.
start_cluster() {
  local folder="$1" workers="$2" device="$3" address i settings
  shift 3
  mkdir -p "$folder/state" "$folder/artifacts"
  rm -f "$folder"/*.pid "$folder"/*.log "$folder/ports.json"
  start_daemon "$folder" coordinator \
    "$BINARIES/coordinator/coordinator" \
    --listen_address=127.0.0.1:0 --http_address=127.0.0.1:0 \
    --state_dir="$folder/state" --artifacts_dir="$folder/artifacts" \
    --port_file="$folder/ports.json"
  wait_for_cluster "$folder" "the coordinator did not start" \
    has_address "$folder" || return
  address="$(address_of "$folder")"
  for ((i = 0; i < workers; ++i)); do
    mapfile -t settings < <(environment_of "$device" "$workers" "$i")
    start_daemon "$folder" "worker-$i" env "${settings[@]}" \
      "$BINARIES/worker/$(worker_for "$device")" --coordinator="$address" \
      --worker_id="worker-$i" --device="$(device_of "$device" "$i")" \
      --http_address=127.0.0.1:0 "$@"
  done
  wait_for_cluster "$folder" "not all $workers workers attached" \
    has_workers "$address" "$workers"
}

# signal_all FOLDER SIGNAL NAME...: those of the daemons that run.
signal_all() {
  local folder="$1" signal="$2" name pid
  shift 2
  for name in "$@"; do
    if ! is_running "$folder/$name.pid"; then continue; fi
    read -r pid _ <"$folder/$name.pid"
    kill "-$signal" "$pid" 2>/dev/null || true
  done
}

# stop_cluster FOLDER: asks, waits, and at last kills. Returns 1 when it had to.
stop_cluster() {
  local folder="$1" killed=0 names
  local deadline=$((SECONDS + CLUSTER_STOP_SECONDS))
  mapfile -t names < <(names_of "$folder")
  signal_all "$folder" TERM "${names[@]}"
  while ((SECONDS < deadline)) && cluster_is_up "$folder"; do sleep 0.1; done
  if cluster_is_up "$folder"; then
    say "some daemons did not stop when asked; killing them" >&2
    signal_all "$folder" KILL "${names[@]}"
    killed=1
  fi
  rm -f "$folder"/*.pid "$folder/ports.json"
  return "$killed"
}

# Stops the cluster of ctl_on_cluster, however its command ends.
end_ctl() {
  local code=$?
  trap - EXIT
  stop_cluster "$CTL_CLUSTER" || true
  exit "$code"
}

# ctl_on_cluster NAME WORKERS ARGS...: weftctl with these arguments, beside a
# cluster in .weft/NAME that is made for it and ends with it, of workers that own
# WEFT_DEVICE, cpu. Files are named from where the user is. Does not return.
ctl_on_cluster() {
  CTL_CLUSTER="$WEFT_STATE/$1"
  local name="$1" workers="$2"
  shift 2
  mkdir -p "$WEFT_STATE"
  exec 9>"$CTL_CLUSTER.lock"
  flock -n 9 || die "a $name run is under way already"
  if cluster_is_up "$CTL_CLUSTER"; then stop_cluster "$CTL_CLUSTER" || true; fi
  rm -rf "$CTL_CLUSTER"
  mkdir -p "$CTL_CLUSTER/data"
  trap end_ctl EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  start_cluster "$CTL_CLUSTER" "$workers" "${WEFT_DEVICE:-cpu}" ||
    die "the cluster did not come up"
  (cd "${OLDPWD:-$WEFT_ROOT}" &&
    weftctl --coordinator="$(address_of "$CTL_CLUSTER")" "$@")
  exit
}
