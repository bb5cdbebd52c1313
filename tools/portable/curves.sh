#!/usr/bin/env bash
# curves [--device cpu] [--jobs N] [--out DIR] [PATTERN]...: runs the experiments' curve tests on the
# GPU, in a packed folder, without Bazel: those whose WORKLOAD:STRATEGY matches a pattern ('gpt_*:single'),
# or all. Each holds its first steps to the expected curve, to the reference, and to a second run of
# itself; steps and tolerances are those of the BUILD files.
#
# Prints a line a test, and what is wrong with those that fail, and keeps the output of each in DIR.
# Exit code 0 only if a test ran and none failed. Tests on real data run where LOCKSTEP_DATA is set.
set -uo pipefail

root="$(cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")" && pwd)"
# What Bazel gives such a test.
readonly most_seconds=300

fail() {
  echo "curves: $*" >&2
  exit 1
}

device=cuda
jobs=1
out=
patterns=()
while (($# > 0)); do
  case "$1" in
    --device | --jobs | --out)
      (($# > 1)) || fail "$1 takes a value"
      declare "${1#--}=$2"
      shift
      ;;
    -*) fail "there is no option $1; see the head of this script" ;;
    *) patterns+=("$1") ;;
  esac
  shift
done
[[ "${jobs}" =~ ^[1-9][0-9]*$ ]] || fail "--jobs takes a number, not ${jobs}"
((${#patterns[@]} > 0)) || patterns=('*')
[[ -n "${out}" ]] || out="$(mktemp --directory --tmpdir lockstep-curves.XXXXXX)"
mkdir -p "${out}" || exit 1
results="${out}/results"
: >"${results}" || exit 1

# matches NAME: whether a pattern does.
matches() {
  local pattern
  for pattern in "${patterns[@]}"; do
    # shellcheck disable=SC2053  # a pattern
    [[ "$1" == ${pattern} ]] && return 0
  done
  return 1
}

# run_test NAME SCRIPT
run_test() {
  local log="${out}/${1/:/.}.txt" code=0 start="${SECONDS}" verdict more=
  timeout --foreground "${most_seconds}" "${root}/$2" --device="${device}" >"${log}" 2>&1 || code=$?
  case "${code}" in
    0) verdict="PASS $1" ;;
    124) verdict="FAIL $1, not done after ${most_seconds} s" ;;
    *) verdict="FAIL $1, exit code ${code}" ;;
  esac
  if ((code == 0)); then
    more="; $(grep '^golden: ' "${log}" | grep -o 'relative difference [^)]*\|no difference')"
  else
    more=$'\n'"$(sed 's/^/  /' "${log}")"
  fi
  verdict+=" ($((SECONDS - start)) s)"
  # In one piece each, since others run beside this.
  echo "${verdict}${more}" | tee -a "${results}"
}

tests=0
without_data=0
while read -r script tags; do
  name="${script#experiments/}"
  name="${name%_cuda_curve_test}"
  name="${name/\//:}"
  matches "${name}" || continue
  if [[ " ${tags} " == *" real_data "* && -z "${LOCKSTEP_DATA:-}" ]]; then
    without_data=$((without_data + 1))
    continue
  fi
  tests=$((tests + 1))
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
  run_test "${name}" "${script}" &
done <"${root}/experiments/gpu_curve_tests.scripts"
wait

((without_data == 0)) ||
  echo "curves: ${without_data} on real data are left out, since LOCKSTEP_DATA names no folder"
passed="$(grep -c '^PASS' "${results}")"
((tests > 0)) || fail "no curve test to run for ${patterns[*]}"
echo "curves: ${passed} of ${tests} passed on ${device}; output in ${out}"
((passed == tests))
