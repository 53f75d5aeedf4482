#!/usr/bin/env bash
# Run reference models on a cluster of their own and check what they give.

# world_of ARG...: what --world says; 1 when it says nothing.
world_of() {
  local world=1
  while (($# > 0)); do
    case "$1" in
      --world=*) world="${1#--world=}" ;;
      --world) world="${2:-}" ;;
    esac
    shift
  done
  echo "$world"
}

weft_golden() {
  if asks_for_help "$@"; then
    source scripts/weft_ctl.sh
    weft_ctl golden --help
  fi
  source scripts/cluster.sh
  local world
  world="$(world_of "$@")"
  if [[ ! "$world" =~ ^[1-9][0-9]*$ ]]; then
    die "golden: --world=$world is no number of ranks"
  fi
  build_cluster "${WEFT_DEVICE:-cpu}"
  ctl_on_cluster golden "$world" golden --work "$WEFT_STATE/golden/data" "$@"
}
