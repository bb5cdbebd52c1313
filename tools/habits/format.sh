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
wrong=0
for source in "${sources[@]}"; do
  [[ -e "${source}" ]] || continue
  if [[ "${1:-}" == --check ]]; then
    if ! "${formatter}" "${source}" | cmp -s - "${source}"; then
      echo "${source} is not formatted"
      wrong=$((wrong + 1))
    fi
  else
    "${formatter}" -i "${source}"
  fi
done
if ((wrong > 0)); then
  echo "format: ${wrong} files; ./bazelw run //tools:format mends them"
  exit 1
fi
