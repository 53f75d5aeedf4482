#!/usr/bin/env bash
# Run weftctl, against the cluster of ./weft up unless another is named.

weft_ctl() {
  if [[ ! -x bazel-bin/client/weftctl ]]; then
    source scripts/weft_install.sh
    weft_install >&2
    run_bazel build //client:weftctl >&2
  fi
  # Files are named from where the user is.
  local caller="${OLDPWD:-$WEFT_ROOT}"
  if [[ -z "${WEFT_COORDINATOR:-}" && -s "$WEFT_STATE/coordinator" ]]; then
    WEFT_COORDINATOR="$(cat "$WEFT_STATE/coordinator")"
    export WEFT_COORDINATOR
  fi
  cd "$caller" || exit
  exec "$WEFT_ROOT/bazel-bin/client/weftctl" "$@"
}
