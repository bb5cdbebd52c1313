#!/usr/bin/env bash
# run PROGRAM [ARGUMENT]...: starts a program of this folder (bin/) with the libraries that lie in it.
# NVIDIA's, which do not, are looked for where the toolkit and Python's packages put them.
set -euo pipefail

root="$(cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")" && pwd)"
if (($# == 0)) || [[ ! -x "${root}/bin/$1" ]]; then
  echo "run: the first argument is a program, one of: $(ls "${root}/bin" | paste -sd ' ')" >&2
  exit 1
fi

libraries=("${root}/lib")
[[ -n "${LD_LIBRARY_PATH:-}" ]] && libraries+=("${LD_LIBRARY_PATH}")
[[ -d /usr/local/cuda/lib64 ]] && libraries+=(/usr/local/cuda/lib64)
if command -v python3 >/dev/null; then
  packages="$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  for folder in "${packages}"/nvidia/*/lib; do
    [[ -d "${folder}" ]] && libraries+=("${folder}")
  done
fi
LD_LIBRARY_PATH="$(IFS=:; echo "${libraries[*]}")"
export LD_LIBRARY_PATH
exec "${root}/bin/$1" "${@:2}"
