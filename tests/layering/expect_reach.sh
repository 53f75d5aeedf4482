#!/usr/bin/env bash
# expect_reach.sh DEPS ROOMS LIBRARIES: fails unless every target listed in the
# file DEPS is of one of ROOMS, or a system library whose name begins with none
# of LIBRARIES. External repositories are Bazel's own.
set -euo pipefail
deps="$1"
read -r -a rooms <<<"$2"
read -r -a libraries <<<"$3"

# allowed LABEL
allowed() {
  local label="$1" room library
  case "$label" in
    //third_party:*)
      for library in ${libraries[@]+"${libraries[@]}"}; do
        if [[ "$label" == "//third_party:$library"* ]]; then return 1; fi
      done
      return 0
      ;;
  esac
  for room in "${rooms[@]}"; do
    case "$label" in
      "//$room:"* | "//$room/"*) return 0 ;;
    esac
  done
  return 1
}

if ! grep -q '^//' "$deps"; then
  echo "there is nothing in $deps"
  exit 1
fi
failed=0
while read -r label; do
  if [[ "$label" == @* ]]; then continue; fi
  if ! allowed "$label"; then
    echo "reaches $label"
    failed=1
  fi
done <"$deps"
exit "$failed"
