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

end_golden() {
  local code=$?
  trap - EXIT
  stop_cluster "$WEFT_STATE/golden" || true
  exit "$code"
}

weft_golden() {
  source scripts/cluster.sh
  local folder="$WEFT_STATE/golden" world caller="${OLDPWD:-$WEFT_ROOT}"
  world="$(world_of "$@")"
  if [[ ! "$world" =~ ^[1-9][0-9]*$ ]]; then
    die "golden: --world=$world is no number of ranks"
  fi
  mkdir -p "$WEFT_STATE"
  exec 9>"$WEFT_STATE/golden.lock"
  flock -n 9 || die "a golden run is under way already"
  build_cluster
  if cluster_is_up "$folder"; then stop_cluster "$folder" || true; fi
  rm -rf "$folder"
  mkdir -p "$folder/data"
  trap end_golden EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  start_cluster "$folder" "$world" cpu || die "the cluster did not come up"
  # Folders are named from where the user is.
  (cd "$caller" && weftctl --coordinator="$(address_of "$folder")" golden \
    --work "$folder/data" "$@")
}
