#!/usr/bin/env bash
# Build everything, or the targets given, with any Bazel options.

weft_build() {
  if asks_for_help "$@"; then
    echo "usage: ./weft build [BAZEL_OPTION...] [TARGET...]    # //... without"
    return
  fi
  source scripts/weft_install.sh
  weft_install
  has_target "$@" || set -- "$@" //...
  run_bazel build "$@"
}
