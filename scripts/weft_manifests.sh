#!/usr/bin/env bash
# Check the manifests, build the images and run their pods, without a cluster.

weft_manifests() {
  source scripts/cluster.sh
  source scripts/images.sh
  source scripts/deploy_check.sh
  local failed=0
  rm -f "$SKIPPED_LOG"
  build_cluster cpu
  if ensure_deploy_packages; then
    if has_commands manifests kubectl; then check_manifests || failed=1; fi
    if has_namespaces; then check_images_and_pods || failed=1; fi
  fi
  echo "$failed failed$(skipped_checks)"
  return "$failed"
}
