#!/usr/bin/env bash
# Time a job on a cluster of its own: [--workers N] and what weftctl bench takes.

weft_bench() {
  local workers=1
  if asks_for_help "$@"; then
    source scripts/weft_ctl.sh
    weft_ctl bench --help
  fi
  case "${1:-}" in
    --workers=*)
      workers="${1#--workers=}"
      shift
      ;;
    --workers)
      workers="${2:-}"
      shift $(($# < 2 ? $# : 2))
      ;;
  esac
  if [[ ! "$workers" =~ ^[1-9][0-9]{0,2}$ ]]; then
    die "bench: --workers=$workers is not a number from 1 to 999"
  fi
  source scripts/cluster.sh
  build_cluster "${WEFT_DEVICE:-cpu}"
  if [[ ! -f "$WEFT_STATE/data/bible.idx" ]]; then prepare_text; fi
  ctl_on_cluster bench "$workers" bench "$@"
}
