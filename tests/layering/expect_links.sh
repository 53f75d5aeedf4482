#!/usr/bin/env bash
# expect_links.sh BINARY LIBRARIES: fails when the binary asks the loader for a
# library whose name, after "lib", begins with one of LIBRARIES.
set -euo pipefail
needed="$(readelf --dynamic --wide "$1" | sed -n 's/.*(NEEDED).*\[lib\(.*\)\]/\1/p')"
read -r -a libraries <<<"$2"

if [[ -z "$needed" ]]; then
  echo "$1 needs nothing: is it a program?"
  exit 1
fi
failed=0
while read -r library; do
  for name in "${libraries[@]}"; do
    if [[ "$library" == "$name"* ]]; then
      echo "$1 is linked with lib$library"
      failed=1
    fi
  done
done <<<"$needed"
exit "$failed"
