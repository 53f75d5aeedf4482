#!/usr/bin/env bash
# Tests of lib.sh and weft_build.sh, with a `bazel` of their own.
set -euo pipefail

WEFT_ROOT="$PWD"
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

cat >"$TEST_TMPDIR/bazel" <<'BAZEL'
#!/usr/bin/env bash
echo "arguments: $*"
if [[ -e /dev/fd/9 ]]; then echo "descriptor 9 is open"; fi
BAZEL
# Every package is there.
cat >"$TEST_TMPDIR/dpkg-query" <<'DPKG'
#!/usr/bin/env bash
echo installed
DPKG
chmod +x "$TEST_TMPDIR/bazel" "$TEST_TMPDIR/dpkg-query"
PATH="$TEST_TMPDIR:$PATH"

# A server that kept the lock of ./weft demo would refuse the next demo.
bazel_gets_no_lock() {
  exec 9>"$TEST_TMPDIR/lock"
  flock -n 9
  local seen
  seen="$(run_bazel build //x)"
  [[ "$seen" == "arguments: build //x" ]] || fail "run_bazel passed on: $seen"
  [[ -e /dev/fd/9 ]] || fail "the command lost its lock"
}

startup_options_come_first() {
  local seen
  seen="$(WEFT_BAZEL_STARTUP="--a=1 --b" run_bazel build //x)"
  [[ "$seen" == "arguments: --a=1 --b build //x" ]] || fail "got: $seen"
}

options_alone_build_everything() {
  # shellcheck source=scripts/weft_build.sh
  source scripts/weft_build.sh
  local seen
  seen="$(weft_build)"
  [[ "$seen" == "arguments: build //..." ]] || fail "got: $seen"
  seen="$(weft_build --jobs=2 -k)"
  [[ "$seen" == "arguments: build --jobs=2 -k //..." ]] || fail "got: $seen"
  seen="$(weft_build --jobs=2 //x)"
  [[ "$seen" == "arguments: build --jobs=2 //x" ]] || fail "got: $seen"
}

bazel_gets_no_lock
startup_options_come_first
options_alone_build_everything
