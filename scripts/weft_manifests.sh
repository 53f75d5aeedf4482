#!/usr/bin/env bash
# Check the manifests, build the images and run their pods, without a cluster.

weft_manifests() {
  source scripts/cluster.sh
  source scripts/images.sh
  source scripts/deploy_check.sh
  local failed=0
  build_cluster cpu
  ensure_deploy_packages || return
  check_manifests || failed=1
  if has_namespaces; then check_images_and_pods || failed=1; fi
  return "$failed"
}
