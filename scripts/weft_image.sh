#!/usr/bin/env bash
# Build the container images: --base IMAGE, --device cpu or cuda, --tag TAG.

usage_image() {
  echo "usage: ./weft image [--base IMAGE] [--device cpu|cuda] [--tag TAG]" >&2
  exit 2
}

# The images they stand on, unless another is named.
IMAGE_BASE_CPU=docker.io/library/debian:12-slim
IMAGE_BASE_CUDA=docker.io/nvidia/cuda:13.0.0-cudnn-runtime-ubuntu24.04

weft_image() {
  source scripts/cluster.sh
  source scripts/images.sh
  local base="" device=cpu tag=dev image folder
  while (($# > 0)); do
    case "$1" in
      --base=* | --device=* | --tag=*)
        set -- "${1%%=*}" "${1#*=}" "${@:2}"
        ;;
      --base | --device | --tag)
        if (($# < 2)); then usage_image; fi
        case "$1" in
          --base) base="$2" ;;
          --device) device="$2" ;;
          --tag) tag="$2" ;;
        esac
        shift 2
        ;;
      *) usage_image ;;
    esac
  done
  if [[ "$device" != cpu && "$device" != cuda ]]; then
    die "--device=$device is neither cpu nor cuda"
  fi
  command -v buildah >/dev/null || die "image needs buildah; apt-get install it"
  build_cluster "$device"
  for image in coordinator worker; do
    folder="$WEFT_STATE/image/$image"
    fill_image "$folder" "$image" "$device"
    if [[ "$image" == worker && "$device" == cuda ]]; then
      build_image "$folder" "$image" "${base:-$IMAGE_BASE_CUDA}" "$tag"
    else
      build_image "$folder" "$image" "${base:-$IMAGE_BASE_CPU}" "$tag"
    fi
    say "built weft-$image:$tag"
  done
}
