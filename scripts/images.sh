#!/usr/bin/env bash
# What goes into the container images. Sourced, after lib.sh and cluster.sh.

BUILDAH=(buildah)

# image_binaries IMAGE DEVICE: FROM NAME of each binary in it, one a line.
image_binaries() {
  case "$1" in
    coordinator)
      echo coordinator/coordinator coordinator
      echo client/weftctl weftctl
      ;;
    worker) echo "worker/$(worker_for "$2") worker" ;;
  esac
}

# fill_image FOLDER IMAGE DEVICE: what the image gets, as it lies in its root.
fill_image() {
  local opt="$1/opt/weft" from name
  source scripts/weft_bundle.sh
  rm -rf "$1"
  while read -r from name; do
    copy_stripped "$BINARIES/$from" "$opt/bin/$name"
  done < <(image_binaries "$2" "$3")
  copy_libraries "$opt"
}

# build_image FOLDER IMAGE BASE TAG: from a folder that is filled. Needs neither
# a daemon nor a namespace of its own.
build_image() {
  "${BUILDAH[@]}" bud --quiet --isolation chroot \
    --file deploy/container/Containerfile --build-arg BASE="$3" \
    --tag "weft-$2:$4" "$1"
}
