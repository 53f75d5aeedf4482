#!/usr/bin/env bash
# Pack what a GPU host needs: binaries, libraries, GPU tests, golden FOLDERs.

# Of the archive. What it may weigh is set by how it travels.
BUNDLE_LIMIT_MIB=40

# Libraries that come with the GPU host's system, its driver or CUDA.
BUNDLE_HOST_LIBRARIES='/(ld-linux.*|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcu.*|libnccl|libnv.*)\.so'

bundle_tests() {
  run_bazel query 'attr(tags, "\bgpu\b", kind(".*_test rule", //...))' \
    2>/dev/null
}

# copy_stripped FROM TO
copy_stripped() {
  mkdir -p "$(dirname "$2")"
  strip -o "$2" "$1"
}

# copy_libraries FOLDER: those that the binaries in it need, to FOLDER/lib.
copy_libraries() {
  local folder="$1" library
  mkdir -p "$folder/lib"
  find "$folder/bin" -type f -executable -exec ldd {} + 2>/dev/null |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE "$BUNDLE_HOST_LIBRARIES" |
    while read -r library; do
      strip -o "$folder/lib/$(basename "$library")" "$(readlink -f "$library")"
    done
}

# fill_bundle FOLDER TEST... -- GOLDEN...
fill_bundle() {
  local folder="$1" label binary
  shift
  for binary in client/weftctl coordinator/coordinator worker/worker_cuda; do
    copy_stripped "bazel-bin/$binary" "$folder/bin/$binary"
  done
  # It owns CPUs, too.
  ln -s worker_cuda "$folder/bin/worker/worker"
  for ((; $# > 0; )); do
    label="$1"
    shift
    if [[ "$label" == -- ]]; then break; fi
    binary="${label#//}"
    copy_stripped "bazel-bin/${binary/:/\/}" "$folder/bin/tests/${label##*:}"
  done
  cp "$(command -v jq)" "$folder/bin/jq"
  copy_libraries "$folder"
  cp -r examples scripts "$folder/"
  cp scripts/bundle_run.sh "$folder/run"
  chmod +x "$folder/run"
  mkdir -p "$folder/golden" "$folder/.weft/data"
  for binary in "$@"; do cp -r "$binary" "$folder/golden/"; done
  if [[ ! -f "$WEFT_STATE/data/bible.idx" ]]; then prepare_text; fi
  cp "$WEFT_STATE"/data/bible.{bin,idx,json} "$folder/.weft/data/"
}

weft_bundle() {
  source scripts/cluster.sh
  local out=bundle/weft-bundle.tar.xz golden=() tests bytes
  while (($# > 0)); do
    case "$1" in
      --out=*) out="${1#--out=}" ;;
      -*) die "usage: ./weft bundle [--out=FILE] [GOLDEN_FOLDER...]" ;;
      *)
        if [[ ! -f "$1/config.json" ]]; then
          die "bundle: $1 is no golden folder: it has no config.json"
        fi
        golden+=("$(readlink -f "$1")")
        ;;
    esac
    shift
  done
  source scripts/weft_install.sh
  weft_install
  mapfile -t tests < <(bundle_tests)
  if ((${#tests[@]} == 0)); then
    die "bundle: this machine has no CUDA toolkit, so there is nothing for GPUs"
  fi
  run_bazel build "${CLUSTER_BINARIES[@]}" //worker:worker_cuda "${tests[@]}"
  mkdir -p "$(dirname "$out")"
  local folder
  folder="$(mktemp -d)"
  # shellcheck disable=SC2064
  trap "rm -rf '$folder'" EXIT
  fill_bundle "$folder" "${tests[@]}" -- ${golden[@]+"${golden[@]}"}
  # The tests hold the same ops: one dictionary over all of them.
  tar -C "$folder" -c . | xz -9 -T1 >"$out"
  bytes="$(stat -c %s "$out")"
  say "$out: $((bytes >> 20)) MiB, ${#tests[@]} GPU tests," \
    "${#golden[@]} golden folders"
  if ((bytes > BUNDLE_LIMIT_MIB << 20)); then
    die "bundle: more than $BUNDLE_LIMIT_MIB MiB; name fewer golden folders"
  fi
}
