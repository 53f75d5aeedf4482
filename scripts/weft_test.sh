#!/usr/bin/env bash
# Run every test and check: plain, ASan+UBSan, TSan, thread safety, lint.
#
# With targets: only their tests, in all three builds.
#
# Each test target of each configuration counts as one, and so does each check.
# A target that does not build counts as failed. The last line names the checks
# that could not be made here, which count as neither.

PASSED=0
FAILED=0
FAILURES=()

# Logs and Bazel's event files of the last run.
TEST_LOGS="$WEFT_STATE/test"

# count_failure NAME
count_failure() {
  FAILED=$((FAILED + 1))
  FAILURES+=("$1")
}

# run_check NAME COMMAND...: one check that is not a test target.
run_check() {
  local name="$1"
  shift
  say "== $name"
  if "$@"; then
    PASSED=$((PASSED + 1))
  else
    count_failure "$name"
  fi
}

# Names in a build event file, one a line: tests that passed, targets that failed
# (their test or their build), and tests that have neither result.
passed_tests() {
  jq -r 'select(.testSummary.overallStatus | . == "PASSED" or . == "FLAKY")
    | .id.testSummary.label' "$1" | sort -u
}
failed_targets() {
  jq -r 'if .testSummary
      and (.testSummary.overallStatus | . != "PASSED" and . != "FLAKY")
    then .id.testSummary.label
    elif .id.targetCompleted and (.completed.success | not)
    then .id.targetCompleted.label
    else empty end' "$1" | sort -u
}
# Those for GPUs are built, but run on GPU hosts.
configured_tests() {
  jq -r 'select(.configured.testSize
      and (.configured.tag // [] | index("gpu") | not))
    | .id.targetConfigured.label' "$1" | sort -u
}

# run_tests NAME OPTIONS-AND-TARGETS...: runs tests with Bazel and counts them.
run_tests() {
  local name="$1"
  shift
  local events="$TEST_LOGS/$name.json"
  local rc=0
  say "== tests, $name"
  rm -f "$events"
  run_bazel test --keep_going --build_event_json_file="$events" "$@" || rc=$?
  if [[ ! -s "$events" ]]; then
    count_failure "$name: Bazel did not run"
    return
  fi

  local passed failed lost target
  mapfile -t passed < <(passed_tests "$events")
  mapfile -t failed < <(failed_targets "$events")
  mapfile -t lost < <(
    comm -23 <(configured_tests "$events") \
      <(printf '%s\n' "${passed[@]}" "${failed[@]}" | sort -u)
  )
  PASSED=$((PASSED + ${#passed[@]}))
  for target in "${failed[@]}"; do count_failure "$name: $target"; done
  for target in "${lost[@]}"; do count_failure "$name: $target has no result"; done
  if ((${#failed[@]} + ${#lost[@]} > 0)); then return; fi
  # What no single target accounts for, such as a BUILD file with an error.
  if ((rc != 0)); then
    count_failure "$name: Bazel exited with $rc"
  elif ((${#passed[@]} == 0)); then
    count_failure "$name: no test ran"
  fi
}

# Compiles all that ships with clang, which proves the lock annotations.
check_thread_safety() {
  local targets="$TEST_LOGS/tsa.targets"
  run_bazel query --noshow_progress \
    'kind("cc_(library|binary)", //...)
       except attr(testonly, 1, //...)
       except attr(tags, "gpu|manual", //...)' >"$targets" &&
    run_bazel build --config=tsa --keep_going --target_pattern_file="$targets"
}

# What is checked of the tree as a whole, beside its test targets.
check_tree() {
  source scripts/golden_matrix.sh
  if [[ -d "$REFERENCE_MODELS" || -d "$MEGATRON_MODELS" ]]; then
    run_check "reference models" golden_matrix
  else
    skip "reference models" "there is neither $REFERENCE_MODELS nor" \
      "$MEGATRON_MODELS"
  fi
  run_check "thread safety annotations" check_thread_safety
  run_check "format" check_format
  run_check "shell scripts" check_shell
  run_check "BUILD files" check_build_files
  if ensure_buf; then run_check "protos" check_protos; fi
  check_deploy
  source scripts/clients_check.sh
  if ensure_node_client; then run_check "foreign clients" check_clients; fi
}

# What runs of deploy/ without a cluster.
check_deploy() {
  source scripts/cluster.sh
  source scripts/images.sh
  source scripts/deploy_check.sh
  ensure_deploy_packages || return 0
  if has_commands manifests kubectl; then
    run_check "manifests" check_manifests
  fi
  if has_namespaces; then
    run_check "container images and pods" check_images_and_pods
  fi
}

weft_test() {
  source scripts/weft_install.sh
  weft_install_for_tests
  mkdir -p "$TEST_LOGS"
  rm -f "$SKIPPED_LOG"
  local is_whole=0
  has_target "$@" || is_whole=1
  if ((is_whole)); then set -- "$@" //...; fi

  run_tests plain "$@"
  run_tests asan --config=asan --build_tests_only "$@"
  run_tests tsan --config=tsan --build_tests_only "$@"
  if ((is_whole)); then check_tree; fi

  local failure
  for failure in ${FAILURES[@]+"${FAILURES[@]}"}; do say "FAILED $failure"; done
  echo "$PASSED passed, $FAILED failed$(skipped_checks)"
  ((FAILED == 0))
}
