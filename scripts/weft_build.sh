#!/usr/bin/env bash
# Build everything, or the targets given, with any Bazel options.

weft_build() {
  source scripts/weft_install.sh
  weft_install
  has_target "$@" || set -- "$@" //...
  run_bazel build "$@"
}
