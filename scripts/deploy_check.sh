#!/usr/bin/env bash
# What is checked of deploy/ without a cluster: manifests, images, pods. Sourced,
# after lib.sh, cluster.sh and images.sh.

# Of npm, for the tests in deploy/test.
DEPLOY_PACKAGES=(@grpc/grpc-js@1.13.4 @kubernetes/client-node@1.3.0)

# has_commands WHAT COMMAND...: whether these are there; else skips WHAT.
has_commands() {
  local what="$1" command
  shift
  for command in "$@"; do
    if ! command -v "$command" >/dev/null; then
      skip "$what" "$command is not installed"
      return 1
    fi
  done
}

# ensure_deploy_packages: those of the tests. Returns 1, saying why, when they
# cannot be had.
ensure_deploy_packages() {
  local modules="$WEFT_STATE/npm/node_modules"
  has_commands "manifests and pods" node npm || return
  if [[ -d "$modules/@kubernetes/client-node" &&
    -d "$modules/@grpc/grpc-js" ]]; then
    return 0
  fi
  mkdir -p "$WEFT_STATE/npm"
  if ! npm install --prefix "$WEFT_STATE/npm" --silent --no-audit --no-fund \
    "${DEPLOY_PACKAGES[@]}" >"$WEFT_STATE/npm/deploy.log" 2>&1; then
    skip "manifests and pods" "npm cannot install ${DEPLOY_PACKAGES[*]}," \
      "see .weft/npm/deploy.log"
    return 1
  fi
}

run_node_test() {
  WEFT_BINARIES="$BINARIES" node --test --test-reporter=spec "$@" 2>&1
}

# Requires: kubectl.
check_manifests() {
  run_node_test deploy/test/{manifests,typos,rules,binaries,node}.test.mjs
}

# Whether images and pods can run here; says why not.
has_namespaces() {
  if ! unshare --net --mount --pid --fork true 2>/dev/null; then
    skip "images and pods" "this machine gives us no namespaces"
    return 1
  fi
}

# make_base IMAGE: a minimal Debian. Returns 1, saying why, when there is no
# mirror to be reached.
make_base() {
  local root="$IMAGE_FOLDER/base" container
  if ! debootstrap --variant=minbase bookworm "$root" \
    >"$WEFT_STATE/debootstrap.log" 2>&1; then
    skip images "debootstrap failed, see .weft/debootstrap.log"
    return 1
  fi
  # As in Debian's slim images.
  rm -rf "$root"/usr/share/{doc,locale,man} "$root"/var/cache/apt/archives/*.deb \
    "$root"/var/lib/apt/lists/*
  container="$("${BUILDAH[@]}" from scratch)"
  "${BUILDAH[@]}" add --quiet "$container" "$root" / >/dev/null
  # As NVIDIA's bases do.
  "${BUILDAH[@]}" config --env LD_LIBRARY_PATH=/base/lib "$container"
  "${BUILDAH[@]}" commit --quiet --rm "$container" "$1" >/dev/null
  rm -rf "$root"
}

# root_of_image IMAGE: the folder that is its root, once its binaries have run
# in it.
root_of_image() {
  local container binary user path
  container="$("${BUILDAH[@]}" from --pull-never "weft-$1:test")"
  user="$("${BUILDAH[@]}" inspect --format '{{.OCIv1.Config.User}}' "$container")"
  if [[ "$user" != 10001:10001 ]]; then
    say "weft-$1 runs as user \"$user\"" >&2
    return 1
  fi
  path="$("${BUILDAH[@]}" run --isolation chroot "$container" -- \
    printenv LD_LIBRARY_PATH)"
  if [[ "$path" != /opt/weft/lib:*:/base/lib ]]; then
    say "weft-$1 looks for libraries in $path, and not where its base does" >&2
    return 1
  fi
  while read -r _ binary; do
    "${BUILDAH[@]}" run --isolation chroot "$container" -- \
      "/opt/weft/bin/$binary" --help >/dev/null || return
  done < <(image_binaries "$1" cpu)
  "${BUILDAH[@]}" mount "$container"
}

# Builds both images on a base of its own, and runs the pods of a manifest from
# them. Where images cannot be built, pods get what would be in them on this
# machine's own root.
run_images_and_pods() {
  local image built=0 root
  local -A roots
  if has_commands images buildah debootstrap &&
    make_base localhost/weft-base; then
    built=1
  fi
  for image in coordinator worker; do
    fill_image "$IMAGE_FOLDER/$image" "$image" cpu || return
    root="$IMAGE_FOLDER/$image:/"
    if ((built)); then
      build_image "$IMAGE_FOLDER/$image" "$image" localhost/weft-base test \
        >/dev/null && root="$(root_of_image "$image")" || return
      say "weft-$image builds and runs"
    fi
    roots["$image"]="$root"
  done
  has_commands pods kubectl ip nsenter setpriv || return 0
  WEFT_COORDINATOR_ROOT="${roots[coordinator]}" \
    WEFT_WORKER_ROOT="${roots[worker]}" WEFT_BINARIES="$BINARIES" \
    unshare --net --pid --fork --mount-proc --kill-child \
    node --test --test-reporter=spec deploy/test/pods.test.mjs 2>&1
}

# In a mount namespace, so that all that is made goes with it.
check_images_and_pods() {
  mkdir -p "$WEFT_STATE/image"
  # shellcheck disable=SC2016  # for the inner shell
  unshare --mount bash -c '
    set -euo pipefail
    for part in lib cluster images deploy_check; do source "scripts/$part.sh"; done
    # In memory: much is copied and soon gone.
    mount -t tmpfs tmpfs "$WEFT_STATE/image"
    IMAGE_FOLDER="$WEFT_STATE/image"
    export TMPDIR="$IMAGE_FOLDER"
    BUILDAH=(buildah --root "$IMAGE_FOLDER/storage"
      --runroot "$IMAGE_FOLDER/run" --storage-driver vfs)
    run_images_and_pods'
}
