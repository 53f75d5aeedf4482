#!/usr/bin/env bash
# Install the Debian packages that building and running need.

WEFT_PACKAGES=(
  # Tools.
  bazel-bootstrap bazel-rules-java default-jdk-headless
  g++ clang clang-format git jq shellcheck unzip zip
  protobuf-compiler protobuf-compiler-grpc
  # Libraries.
  libabsl-dev libbenchmark-dev libcivetweb-dev libcli11-dev libdnnl-dev
  libgmock-dev libgoogle-glog-dev libgrpc++-dev libgtest-dev libprotobuf-dev
  libsqlite3-dev libucx-dev libyaml-cpp-dev nlohmann-json3-dev
  prometheus-cpp-dev
  # A text to train on.
  bible-kjv
)

# What the tests need besides.
WEFT_TEST_PACKAGES=(buildah debootstrap iproute2 prometheus)

# missing_packages PACKAGE...: those that are not installed, one a line.
missing_packages() {
  local package
  for package in "$@"; do
    if [[ "$(dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null |
      head -n 1)" != installed ]]; then
      echo "$package"
    fi
  done
}

# Runs apt-get as root, quietly unless it fails.
run_apt() {
  local sudo=()
  if [[ "$(id -u)" != 0 ]]; then sudo=(sudo -n); fi
  local log="$WEFT_STATE/apt.log"
  if ! ${sudo[@]+"${sudo[@]}"} env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" \
    >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    return 1
  fi
}

weft_install() { install_packages "${WEFT_PACKAGES[@]}"; }

weft_install_for_tests() {
  install_packages "${WEFT_PACKAGES[@]}" "${WEFT_TEST_PACKAGES[@]}"
}

# install_packages PACKAGE...: those that are missing.
install_packages() {
  command -v dpkg-query >/dev/null ||
    die "install needs Debian 12: there is no dpkg-query"
  local missing
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then return 0; fi

  if [[ "$(id -u)" != 0 ]] && ! sudo -n true 2>/dev/null; then
    die "install needs root or sudo without a password; as root, run:" \
      "apt-get install ${missing[*]}"
  fi
  mkdir -p "$WEFT_STATE"
  say "installing ${missing[*]}"
  # Package lists may be old or absent; without a network those at hand may do.
  run_apt update || say "apt-get update failed; going on with the lists at hand"
  run_apt install --no-install-recommends -y "${missing[@]}" ||
    die "apt-get install failed"
}
