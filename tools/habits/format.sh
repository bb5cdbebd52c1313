#!/usr/bin/env bash
# Formats the C++ and CUDA sources of the repository as .clang-format says:
#
#   ./bazelw run //tools:format               # all tracked and new sources
#   ./bazelw run //tools:format -- --check    # changes nothing; names what differs, exit code 1
set -euo pipefail

cd "${BUILD_WORKSPACE_DIRECTORY:?start this with ./bazelw run //tools:format}"
if (($# > 1)) || [[ "${1:---check}" != --check ]]; then
  echo "format: use no argument, or --check" >&2
  exit 1
fi
# Another version of clang-format breaks lines elsewhere.
formatter="$(command -v clang-format-14 || command -v clang-format)" || {
  echo "format: there is no clang-format (Debian: clang-format)" >&2
  exit 1
}
if ! "${formatter}" --version | grep -q 'version 14\.'; then
  echo "format: this is $("${formatter}" --version), and sources are formatted by version 14" >&2
  exit 1
fi

mapfile -d '' -t sources < <(git ls-files -z --cached --others --exclude-standard -- \
  '*.cc' '*.h' '*.cu' '*.cuh')
existing=()
for source in "${sources[@]}"; do
  if [[ -e "${source}" ]]; then existing+=("${source}"); fi
done
# each ARGUMENT...: the formatter with these arguments, on all sources, some at a time.
each() {
  printf '%s\0' "${existing[@]}" | xargs -0 -n 32 -P "$(nproc)" "${formatter}" "$@"
}
if [[ "${1:-}" != --check ]]; then
  each -i
  exit
fi
mapfile -t wrong < <(each --dry-run 2>&1 |
  sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: warning: code should be clang-formatted.*/\1/p' | sort -u)
if ((${#wrong[@]} > 0)); then
  printf '%s is not formatted\n' "${wrong[@]}"
  echo "format: ${#wrong[@]} files; ./bazelw run //tools:format mends them"
  exit 1
fi
