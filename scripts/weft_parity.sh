#!/usr/bin/env bash
# Run a job under every legal combination, on a cluster of its own, and compare.

PARITY_WORKERS=4

end_parity() {
  local code=$?
  trap - EXIT
  stop_cluster "$WEFT_STATE/parity" || true
  exit "$code"
}

weft_parity() {
  source scripts/cluster.sh
  local folder="$WEFT_STATE/parity" caller="${OLDPWD:-$WEFT_ROOT}"
  mkdir -p "$WEFT_STATE"
  exec 9>"$WEFT_STATE/parity.lock"
  flock -n 9 || die "a parity run is under way already"
  build_cluster
  if cluster_is_up "$folder"; then stop_cluster "$folder" || true; fi
  rm -rf "$folder"
  mkdir -p "$folder"
  if [[ ! -f "$WEFT_STATE/data/bible.idx" ]]; then prepare_text; fi
  trap end_parity EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  start_cluster "$folder" "$PARITY_WORKERS" cpu ||
    die "the cluster did not come up"
  # Files are named from where the user is.
  (cd "$caller" && weftctl --coordinator="$(address_of "$folder")" parity "$@")
}
