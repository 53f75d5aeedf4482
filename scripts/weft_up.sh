#!/usr/bin/env bash
# Start a local cluster that stays up: --workers N, --device cpu or cuda, -- FLAGS.

usage_up() {
  echo "usage: ./weft up [--workers N] [--device cpu|cuda] [-- WORKER_FLAG...]" >&2
  exit 2
}

weft_up() {
  source scripts/cluster.sh
  local workers=4 device=cpu flags=()
  while (($# > 0)); do
    case "$1" in
      --workers=* | --device=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
      --workers | --device)
        if (($# < 2)); then usage_up; fi
        if [[ "$1" == --workers ]]; then workers="$2"; else device="$2"; fi
        shift 2
        ;;
      --)
        flags=("${@:2}")
        break
        ;;
      *) usage_up ;;
    esac
  done
  if [[ ! "$workers" =~ ^[1-9][0-9]{0,2}$ ]]; then
    die "--workers=$workers is not a number from 1 to 999"
  fi
  if [[ "$device" != cpu && "$device" != cuda ]]; then
    die "--device=$device is neither cpu nor cuda"
  fi

  local folder="$WEFT_STATE/up"
  mkdir -p "$WEFT_STATE"
  exec 9>"$WEFT_STATE/up.lock"
  flock -n 9 || die "a cluster is being started already"
  if cluster_is_up "$folder"; then
    die "a cluster is up already, at $(address_of "$folder" || echo '?');" \
      "stop it with ./weft down"
  fi
  build_cluster "$device"
  if [[ ! -f "$WEFT_STATE/data/bible.idx" ]]; then prepare_text; fi
  say "starting a coordinator and $workers workers"
  if ! start_cluster "$folder" "$workers" "$device" "${flags[@]}"; then
    stop_cluster "$folder" || true
    die "the cluster did not come up"
  fi
  address_of "$folder" >"$WEFT_STATE/coordinator"
  say "up: coordinator at $(address_of "$folder")," \
    "status at http://$(jq -r .http "$folder/ports.json")/"
  say "logs and artifacts are in .weft/up; submit a job with" \
    "./weft ctl submit -f examples/moe_text.yaml"
}
