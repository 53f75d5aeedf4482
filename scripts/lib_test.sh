#!/usr/bin/env bash
# Tests of lib.sh and of commands, with a `bazel` of their own.
set -euo pipefail

WEFT_ROOT="$PWD"
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
SKIPPED_LOG="$TEST_TMPDIR/skipped-here"

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

# ctl_after_edit TIME: what ./weft ctl prints when a source is that new.
ctl_after_edit() {
  local tree="$TEST_TMPDIR/tree"
  mkdir -p "$tree/client" "$tree/bazel-bin/client"
  ln -sfn "$WEFT_ROOT/scripts" "$tree/scripts"
  printf '#!/usr/bin/env bash\necho "weftctl $*"\n' \
    >"$tree/bazel-bin/client/weftctl"
  chmod +x "$tree/bazel-bin/client/weftctl"
  touch -d 2020-01-01T12:00 "$tree/bazel-bin/client/weftctl"
  touch -d "$1" "$tree/client/cli.cc"
  (
    cd "$tree"
    tracked() { printf 'client/cli.cc\0'; }
    WEFT_ROOT="$tree" OLDPWD="$tree" weft_ctl get jobs 2>&1
  )
}

ctl_is_built_when_a_source_is_newer() {
  # shellcheck source=scripts/weft_ctl.sh
  source scripts/weft_ctl.sh
  local seen
  seen="$(ctl_after_edit 2020-01-01T11:59)"
  [[ "$seen" == "weftctl get jobs" ]] || fail "got: $seen"
  seen="$(ctl_after_edit 2020-01-01T12:01)"
  [[ "$seen" == *"arguments: build "*" //client:weftctl"*"weftctl get jobs" ]] ||
    fail "got: $seen"
}

help_needs_no_cluster() {
  # shellcheck source=scripts/weft_parity.sh
  source scripts/weft_parity.sh
  local tree="$TEST_TMPDIR/help" seen
  mkdir -p "$tree/scripts"
  echo 'weft_ctl() { echo "weftctl $*"; exit; }' >"$tree/scripts/weft_ctl.sh"
  seen="$(cd "$tree" && weft_parity -f job.yaml --help)"
  [[ "$seen" == "weftctl parity --help" ]] || fail "got: $seen"
}

binaries_that_are_named_are_run_and_not_built() {
  local folder="$TEST_TMPDIR/binaries" seen
  mkdir -p "$folder/client"
  printf '#!/usr/bin/env bash\necho "named weftctl $*"\n' \
    >"$folder/client/weftctl"
  chmod +x "$folder/client/weftctl"
  seen="$(
    # shellcheck disable=SC2030  # what is sourced next reads it
    WEFT_BINARIES="$folder"
    # shellcheck source=scripts/cluster.sh
    source scripts/cluster.sh
    build_cluster
    weftctl get jobs
  )"
  [[ "$seen" == "named weftctl get jobs" ]] || fail "got: $seen"
}

targets_alone_are_tested() {
  # shellcheck source=scripts/weft_test.sh
  source scripts/weft_test.sh
  # shellcheck disable=SC2034  # weft_test reads it
  TEST_LOGS="$TEST_TMPDIR/logs"
  run_tests() { echo "tests: $*"; }
  check_tree() { echo "the tree"; }
  local seen
  seen="$(weft_test --jobs=2 //x)"
  [[ "$seen" == *"tests: plain --jobs=2 //x"*"tests: tsan "*" //x"* ]] ||
    fail "got: $seen"
  [[ "$seen" != *"the tree"* ]] || fail "the tree was checked: $seen"
  seen="$(weft_test --jobs=2)"
  [[ "$seen" == *"tests: plain --jobs=2 //..."*"the tree"* ]] ||
    fail "got: $seen"
}

# What ./weft up starts, with stand-ins for all that it calls.
up_with() {
  # shellcheck disable=SC2030,SC2317  # weft_up calls and reads these
  (
    WEFT_STATE="$TEST_TMPDIR/up"
    source() { :; }
    for name in build_cluster prepare_text say jq; do
      eval "$name() { :; }"
    done
    cluster_is_up() { return 1; }
    address_of() { echo address; }
    start_cluster() { echo "start: ${*:2}"; }
    weft_up "$@"
  )
}

workers_get_the_flags_behind_dashes() {
  # shellcheck source=scripts/weft_up.sh
  source scripts/weft_up.sh
  local seen
  seen="$(up_with --workers 2 -- --measure_memory --released_memory=return)"
  [[ "$seen" == "start: 2 cpu --measure_memory --released_memory=return" ]] ||
    fail "got: $seen"
  seen="$(up_with --workers=3)"
  [[ "$seen" == "start: 3 cpu" ]] || fail "got: $seen"
}

# What a bundle's `run` offers is there.
bundle_commands_exist() {
  local command
  for command in $(sed -nE 's/^  ([a-z]+( \| [a-z]+)+)\)$/\1/p' \
    "$WEFT_ROOT/scripts/bundle_run.sh" | tr -d '|'); do
    [[ -f "$WEFT_ROOT/scripts/weft_$command.sh" ]] ||
      fail "run $command: there is no scripts/weft_$command.sh"
  done
  [[ -n "${command:-}" ]] || fail "no command was found in bundle_run.sh"
}

images_get_the_worker_of_their_device() {
  # shellcheck source=scripts/cluster.sh
  source scripts/cluster.sh
  # shellcheck source=scripts/images.sh
  source scripts/images.sh
  local seen
  seen="$(image_binaries worker cpu) $(image_binaries worker cuda)"
  [[ "$seen" == "worker/worker worker worker/worker_cuda worker" ]] ||
    fail "got: $seen"
}

what_cannot_be_checked_is_said() {
  # shellcheck source=scripts/deploy_check.sh
  source scripts/deploy_check.sh
  local seen
  seen="$(has_commands pods bash no-such-command || echo "rc=$?")"
  [[ "$seen" == "weft: pods skipped: no-such-command is not installed"*"rc=1" ]] ||
    fail "got: $seen"
  has_commands pods bash || fail "bash is there"
}

# last_line_without COMMAND...: that of ./weft test where these are not there, and
# all that is checked passes.
last_line_without() {
  # shellcheck disable=SC2030,SC2034,SC2317  # weft_test calls and reads these
  (
    WEFT_STATE="$TEST_TMPDIR/whole"
    SKIPPED_LOG="$WEFT_STATE/skipped"
    # shellcheck source=scripts/weft_test.sh
    source scripts/weft_test.sh
    # shellcheck source=scripts/deploy_check.sh
    source scripts/deploy_check.sh
    source() { :; }
    local absent=" $* "
    command() { [[ "$absent" != *" $2 "* ]]; }
    for name in weft_install_for_tests ensure_deploy_packages has_namespaces; do
      eval "$name() { :; }"
    done
    run_tests() { PASSED=$((PASSED + 1)); }
    run_check() { PASSED=$((PASSED + 1)); }
    check_tree() { check_deploy; }
    # Of another run.
    mkdir -p "$WEFT_STATE"
    echo "an old run: skipped" >"$SKIPPED_LOG"
    weft_test | tail -n 1
  )
}

the_last_line_names_what_was_skipped() {
  local seen
  seen="$(last_line_without)"
  [[ "$seen" == "5 passed, 0 failed" ]] || fail "got: $seen"
  seen="$(last_line_without kubectl)"
  [[ "$seen" == "4 passed, 0 failed, 1 skipped (manifests: kubectl is not installed)" ]] ||
    fail "got: $seen"
}

skipped_checks_are_named_once() {
  local seen
  seen="$(
    SKIPPED_LOG="$TEST_TMPDIR/skipped"
    skip a "no b is here" >/dev/null
    skip c "no d" >/dev/null
    skip a "no b is here" >/dev/null
    skipped_checks
  )"
  [[ "$seen" == ", 2 skipped (a: no b is here; c: no d)" ]] || fail "got: $seen"
}

# A coordinator without its worker would go on after the tests.
clients_leave_no_cluster_behind() {
  # shellcheck source=scripts/clients_check.sh
  source scripts/clients_check.sh
  local seen
  # shellcheck disable=SC2030,SC2317  # check_clients calls and reads these
  seen="$(
    WEFT_STATE="$TEST_TMPDIR/clients"
    source() { :; }
    cluster_is_up() { return 1; }
    build_cluster() { :; }
    start_cluster() { return 1; }
    stop_cluster() { echo "stopped $1"; }
    check_clients || echo "rc=$?"
  )"
  [[ "$seen" == "stopped $TEST_TMPDIR/clients/clients"*"rc=1" ]] ||
    fail "got: $seen"
}

bundle_commands_exist
bazel_gets_no_lock
startup_options_come_first
options_alone_build_everything
ctl_is_built_when_a_source_is_newer
binaries_that_are_named_are_run_and_not_built
targets_alone_are_tested
workers_get_the_flags_behind_dashes
help_needs_no_cluster
images_get_the_worker_of_their_device
what_cannot_be_checked_is_said
the_last_line_names_what_was_skipped
skipped_checks_are_named_once
clients_leave_no_cluster_behind
