#!/usr/bin/env bash
# Run a job under every legal combination, on a cluster of its own, and compare.

PARITY_WORKERS="${WEFT_PARITY_WORKERS:-4}"

weft_parity() {
  if asks_for_help "$@"; then
    source scripts/weft_ctl.sh
    weft_ctl parity --help
  fi
  source scripts/cluster.sh
  build_cluster "${WEFT_DEVICE:-cpu}"
  if [[ ! -f "$WEFT_STATE/data/bible.idx" ]]; then prepare_text; fi
  ctl_on_cluster parity "$PARITY_WORKERS" parity "$@"
}
