#!/usr/bin/env bash
# Check format, shell scripts, BUILD files and protos.

weft_lint() {
  local failed=0
  check_format || failed=1
  check_shell || failed=1
  check_build_files || failed=1
  if ensure_buf; then check_protos || failed=1; fi
  return "$failed"
}
