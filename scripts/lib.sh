#!/usr/bin/env bash
# What several commands share. Sourced by ./weft, with the tree's root as the
# working directory.

# Where commands keep what they make for themselves. Not tracked.
WEFT_STATE="$WEFT_ROOT/.weft"

say() { echo "weft: $*"; }

die() {
  echo "weft: $*" >&2
  exit 1
}

# What was not checked and why, a line each: a file, as some checks run in shells
# of their own.
SKIPPED_LOG="$WEFT_STATE/skipped"

# skip WHAT WHY...: says that a check is not done, for skipped_checks to repeat.
skip() {
  local what="$1"
  shift
  say "$what skipped: $*"
  mkdir -p "$WEFT_STATE"
  echo "$what: $*" >>"$SKIPPED_LOG"
}

# For the end of the last line of a command that checks: how many checks were
# skipped since SKIPPED_LOG was removed, and which.
skipped_checks() {
  local skipped names
  if [[ ! -s "$SKIPPED_LOG" ]]; then return 0; fi
  mapfile -t skipped < <(awk '!seen[$0]++' "$SKIPPED_LOG")
  names="$(printf '; %s' "${skipped[@]}")"
  echo ", ${#skipped[@]} skipped (${names:2})"
}

# Runs Bazel. WEFT_BAZEL_STARTUP adds startup options, such as
# --output_base=/tmp/base for builds side by side. Its server outlives the
# command, so it gets no lock: commands hold theirs on descriptor 9.
run_bazel() {
  local startup=()
  read -r -a startup <<<"${WEFT_BAZEL_STARTUP:-}"
  HOME="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}" \
    bazel ${startup[@]+"${startup[@]}"} "$@" 9>&-
}

# has_target ARGUMENT...: whether any of these arguments of Bazel is no option.
has_target() {
  local argument
  for argument in "$@"; do
    if [[ "$argument" != -* ]]; then return 0; fi
  done
  return 1
}

# asks_for_help ARGUMENT...
asks_for_help() {
  local argument
  for argument in "$@"; do
    if [[ "$argument" == --help || "$argument" == -h ]]; then return 0; fi
  done
  return 1
}

# tracked PATTERN...: the tracked files that exist, NUL-separated.
tracked() {
  # The tree may belong to another user than the one who tests it.
  git -c safe.directory="$WEFT_ROOT" ls-files -z -- "$@" |
    while IFS= read -r -d '' file; do
      if [[ -f "$file" ]]; then printf '%s\0' "$file"; fi
    done
}

list_sources() { tracked '*.cc' '*.h' '*.cu' '*.cuh'; }
list_shell_scripts() { tracked weft '.ci/run' '*.sh'; }

check_format() { list_sources | xargs -0 -r clang-format --dry-run --Werror; }

check_shell() {
  list_shell_scripts | xargs -0 -r shellcheck --external-sources
}

# Our targets are made by bazel/weft.bzl, which checks the layering.
check_build_files() {
  local plain
  plain="$(tracked '*BUILD' | grep -zv '^third_party/' |
    xargs -0 -r grep -nE '^cc_(library|binary|test|import)\(' || true)"
  if [[ -z "$plain" ]]; then return 0; fi
  echo "these targets must use the rules of //bazel:weft.bzl:"
  echo "$plain"
  return 1
}

BUF_VERSION=1.75.0

# Makes sure that `buf` is there. Returns 1, saying why, when it cannot be had.
ensure_buf() {
  BUF="$WEFT_STATE/npm/node_modules/.bin/buf"
  if [[ -x "$BUF" ]]; then return 0; fi
  if ! command -v npm >/dev/null; then
    skip buf "npm is not installed"
    return 1
  fi
  mkdir -p "$WEFT_STATE/npm"
  if ! npm install --prefix "$WEFT_STATE/npm" --silent --no-audit --no-fund \
    "@bufbuild/buf@$BUF_VERSION" >"$WEFT_STATE/npm/install.log" 2>&1; then
    skip buf "npm cannot install @bufbuild/buf@$BUF_VERSION," \
      "see .weft/npm/install.log"
    return 1
  fi
}

# protos_of REVISION FOLDER: the protos of a revision, with their settings.
protos_of() {
  mkdir -p "$2"
  git -c safe.directory="$WEFT_ROOT" archive "$1" buf.yaml proto | tar -x -C "$2"
}

# Those of the tree are clean, and those who call with the last commit's, or with
# the one before, still can.
check_protos() {
  local old="$WEFT_STATE/protos" revision failed=0
  "$BUF" lint || failed=1
  for revision in HEAD HEAD~1; do
    rm -rf "$old"
    if ! protos_of "$revision" "$old" 2>/dev/null; then
      skip "buf breaking for $revision" "it is not in this clone"
      continue
    fi
    "$BUF" breaking --against "$old" || failed=1
  done
  rm -rf "$old"
  return "$failed"
}
