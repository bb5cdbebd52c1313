#!/usr/bin/env bash
# pack PROGRAM... DIR: lays programs, the shared libraries that a bare machine lacks, the experiments'
# configurations and their curve tests on GPUs into the folder DIR, which then runs where there is a
# Linux of glibc 2.36 or later: with `DIR/run PROGRAM`, `DIR/curves` and `DIR/check`. NVIDIA's libraries
# are opened by what computes on a GPU (core/cuda/libraries), and are the machine's.
#
#   ./bazelw run --config=cuda --config=portable //tools/portable:pack -- DIR
set -euo pipefail

readonly most_bytes=60000000

fail() {
  echo "pack: $*" >&2
  exit 1
}

programs=("${@:1:$#-1}")
((${#programs[@]} > 0 && $# > 1)) || fail "the last argument is the folder to make"
folder="${*: -1}"
[[ "${folder}" == /* ]] || folder="${BUILD_WORKING_DIRECTORY:-${PWD}}/${folder}"
[[ ! -e "${folder}" ]] || fail "${folder} is there already; remove it or name another folder"

# Beside its name first: a folder that is there is whole.
parts="${folder}.parts"
rm -rf "${parts}"
trap 'rm -rf "${parts}"' EXIT
mkdir -p "${parts}/bin" "${parts}/lib"

for program in "${programs[@]}"; do
  install -m 755 "${program}" "${parts}/bin/"
  while read -r name arrow path _; do
    case "${name}" in
      # glibc's and the kernel's own, which every machine has.
      linux-vdso.so.* | libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | /*/ld-linux*) ;;
      *)
        [[ "${arrow}" == "=>" && "${path}" == /* ]] || fail "${program} needs ${name}, which this machine lacks"
        install -m 644 "${path}" "${parts}/lib/${name}"
        ;;
    esac
  done < <(ldd "${program}")
done
for script in run curves check; do
  install -m 755 "tools/portable/${script}.sh" "${parts}/${script}"
done
install -m 644 tools/portable/items.tsv "${parts}/items"
find -L experiments -type f -exec cp --parents --target-directory="${parts}" {} +

# The experiments' own scripts start the binaries that Bazel would lay beside them. Here stands a line
# of shell for each, that starts lockstep with the command of this name; main has that of its folder.
while read -r binary; do
  command="$(basename "${binary%/main}")"
  mkdir -p "${parts}/$(dirname "${binary}")"
  printf '#!/usr/bin/env bash\npath="$(realpath "$0")"\nexec "${path%%/%s}/run" lockstep %s "$@"\n' \
    "${binary}" "${command}" >"${parts}/${binary}"
  chmod 755 "${parts}/${binary}"
done <experiments/gpu_curve_tests.binaries

# For whoever reads results: what was packed.
git -C "${BUILD_WORKSPACE_DIRECTORY:-/}" describe --always --dirty >"${parts}/commit" 2>/dev/null ||
  echo unknown >"${parts}/commit"

bytes="$(du -sb "${parts}" | cut -f 1)"
((bytes <= most_bytes)) || fail "${bytes} bytes are more than ${most_bytes}: $(du -ab "${parts}" | sort -nr | head -9 | paste -sd ' ')"
mv "${parts}" "${folder}"
trap - EXIT
echo "pack: ${folder}: $((bytes / 1000000)) MB; ${folder}/run PROGRAM starts $(ls "${folder}/bin" | paste -sd ' ')"
