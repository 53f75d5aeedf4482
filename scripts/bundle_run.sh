#!/usr/bin/env bash
# Run what a bundle holds, on a GPU host: ./run COMMAND [arguments].
#
#   up [--workers N] [--device cuda|cpu]   a cluster that stays up; down stops it
#   ctl ARGUMENT...                        weftctl, against that cluster
#   test [PATTERN]                         the GPU tests whose name holds PATTERN
#   golden [FLAG...] [FOLDER...]           those of golden/ unless some are named
#   parity -f JOB.yaml --vary ...
#   bench [--workers N] ARGUMENT...        weftctl bench, on a cluster of its own
#
# WEFT_DEVICE=cpu runs golden, parity and bench on the host's CPU.
set -euo pipefail

WEFT_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
WEFT_BINARIES="$WEFT_ROOT/bin"
WEFT_DEVICE="${WEFT_DEVICE:-cuda}"
LD_LIBRARY_PATH="$WEFT_ROOT/lib:${CUDA_HOME:-/usr/local/cuda}/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# NVLink multicast stays off.
NCCL_NVLS_ENABLE=0
PATH="$WEFT_ROOT/bin:$PATH"
export WEFT_ROOT WEFT_BINARIES WEFT_DEVICE LD_LIBRARY_PATH NCCL_NVLS_ENABLE PATH
cd "$WEFT_ROOT"

# shellcheck source=scripts/lib.sh
source scripts/lib.sh

run_tests() {
  local pattern="${1:-}" failed=0 test
  for test in bin/tests/*"$pattern"*; do
    if OMP_NUM_THREADS=1 "$test" --gtest_brief=1 >"$test.log" 2>&1; then
      say "passed $(basename "$test"): $(tail -n 1 "$test.log")"
    else
      say "FAILED $(basename "$test")"
      tail -n 40 "$test.log"
      failed=1
    fi
  done
  return "$failed"
}

# golden [FLAG...] [FOLDER...]
run_golden() {
  local argument named=0
  for argument in "$@"; do
    if [[ -d "$argument" ]]; then named=1; fi
  done
  if ((named == 0)); then set -- "$@" golden/*/; fi
  source scripts/weft_golden.sh
  weft_golden "$@"
}

case "${1:-}" in
  test) run_tests "${@:2}" ;;
  golden) run_golden "${@:2}" ;;
  up | down | ctl | parity | bench)
    command="$1"
    shift
    if [[ "$command" == up ]]; then set -- --device="$WEFT_DEVICE" "$@"; fi
    # shellcheck source=/dev/null
    source "scripts/weft_$command.sh"
    "weft_$command" "$@"
    ;;
  *)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
