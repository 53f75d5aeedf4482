#!/usr/bin/env bash
# Stop the cluster that ./weft up started.

weft_down() {
  source scripts/cluster.sh
  if (($# > 0)); then
    echo "usage: ./weft down" >&2
    exit 2
  fi
  local folder="$WEFT_STATE/up"
  rm -f "$WEFT_STATE/coordinator"
  if ! cluster_is_up "$folder"; then
    rm -f "$folder"/*.pid "$folder/ports.json"
    say "no cluster is up"
    return 0
  fi
  local count
  count="$(names_of "$folder" | wc -l)"
  stop_cluster "$folder" || die "stopped by force; logs are in .weft/up"
  say "stopped $count daemons; logs and artifacts stay in .weft/up"
}
