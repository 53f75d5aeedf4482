#!/usr/bin/env bash
# expect_empty.sh FILE: fails, printing it, unless the file is empty.
set -euo pipefail
if [[ -s "$1" ]]; then
  cat "$1"
  exit 1
fi
