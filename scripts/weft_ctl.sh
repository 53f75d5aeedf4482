#!/usr/bin/env bash
# Run weftctl, against the cluster of ./weft up unless another is named.

# What weftctl is made of.
CTL_SOURCES=(client schedule model fsdp proto base data checkpoint)

# Whether weftctl is built and, as far as can be told, from the sources as they
# are.
ctl_is_fresh() {
  local binary=bazel-bin/client/weftctl file
  if [[ ! -x "$binary" ]]; then return 1; fi
  while IFS= read -r -d '' file; do
    if [[ "$file" -nt "$binary" && "$file" != *_test.cc ]]; then return 1; fi
  done < <(tracked "${CTL_SOURCES[@]}")
}

build_ctl() {
  source scripts/weft_install.sh
  weft_install
  say "building weftctl"
  run_bazel build --noshow_progress --ui_event_filters=-info \
    --show_result=0 //client:weftctl
}

weft_ctl() {
  if [[ -z "${WEFT_BINARIES:-}" ]]; then ctl_is_fresh || build_ctl >&2; fi
  # Files are named from where the user is.
  local caller="${OLDPWD:-$WEFT_ROOT}"
  if [[ -z "${WEFT_COORDINATOR:-}" && -s "$WEFT_STATE/coordinator" ]]; then
    WEFT_COORDINATOR="$(cat "$WEFT_STATE/coordinator")"
    export WEFT_COORDINATOR
  fi
  cd "$caller" || exit
  exec "${WEFT_BINARIES:-$WEFT_ROOT/bazel-bin}/client/weftctl" "$@"
}
