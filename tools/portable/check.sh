#!/usr/bin/env bash
# check [OPTION]... [PART]...: all that a machine with a GPU is wanted for, in a packed folder. Parts, the
# quickest first, since such a machine may be lent for minutes; all of them if none is named:
#
#   hardware    what the machine is, and the versions of what is installed
#   tests       the tests of GPUs; those of NCCL where there are two
#   presets     every preset has the bits of one GPU: four ranks on one, and over NCCL where there are four
#   curves      the loss curves of the experiments
#   benchmarks  the speed of training
#   sanitizer   the tests, but for NCCL's and the presets, under compute-sanitizer
#
#   --results DIR        where output goes; results_<date>_<time> if not given
#   --limit SECONDS      how long a command may take; 1200
#   --tests PATTERNS     of GoogleTest without a '-', which tests run, also under compute-sanitizer; '*'
#   --curves PATTERN     which curve tests run; '*'
#   --jobs N             how many of them at a time, and in how many processes the tests run; 8
#   --tools LIST         of compute-sanitizer; memcheck,racecheck,initcheck,synccheck
#   --python PYTHON      with PyTorch, to compare with; python3
#   --torch_peer SCRIPT  of the PyTorch side of the benchmarks; without it nothing is compared
#
# A command that fails does not keep the others from running. Each leaves its output in DIR/<name>.txt,
# and DIR/summary.txt says how all of them went; DIR/table.md has that with commit, GPU and date as a table
# to paste, and counts the tests of each line of the folder's `items`. It is printed last. Exit code 0 only
# if all passed.
set -uo pipefail

root="$(cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")" && pwd)"
# The tests that train on several ranks (strategies/testing/gpus_test.cc).
readonly rank_tests='Presets*:Gpus*'
readonly all_parts=(hardware tests presets curves benchmarks sanitizer)

fail() {
  echo "check: $*" >&2
  exit 1
}

results="results_$(date +%Y-%m-%d_%H%M%S)"
limit=1200
tests='*'
curves='*'
jobs=8
tools=memcheck,racecheck,initcheck,synccheck
python=python3
torch_peer=
parts=()
while (($# > 0)); do
  case "$1" in
    --results | --limit | --tests | --curves | --jobs | --tools | --python | --torch_peer)
      (($# > 1)) || fail "$1 takes a value"
      declare "${1#--}=$2"
      shift
      ;;
    *)
      [[ " ${all_parts[*]} " == *" $1 "* ]] ||
        fail "\"$1\" is neither an option nor one of the parts ${all_parts[*]}; see the head of this script"
      parts+=("$1")
      ;;
  esac
  shift
done
[[ "${jobs}" =~ ^[1-9][0-9]*$ ]] || fail "--jobs takes a number from 1 on, not ${jobs}"
((${#parts[@]} > 0)) || parts=("${all_parts[@]}")
if [[ -n "${torch_peer}" ]]; then
  # The benchmark would go on without.
  [[ -f "${torch_peer}" ]] || fail "--torch_peer: there is no file ${torch_peer}"
  "${python}" -c 'import torch' || fail "--torch_peer: ${python} has no PyTorch; name another by --python"
fi
mkdir -p "${results}" || exit 1
results="$(realpath "${results}")"
summary="${results}/summary.txt"
: >"${summary}" || exit 1
rows="${results}/rows"
: >"${rows}" || exit 1

# record NAME COMMAND...: runs it, shows and keeps its output, and notes how it went.
record() {
  local name="$1" log="${results}/$1.txt" start="${SECONDS}" code verdict=PASS
  shift
  {
    echo "== ${name}, $(date --iso-8601=seconds)"
    printf '$'
    printf ' %q' "$@"
    printf '\n'
    timeout --kill-after=30 "${limit}" "$@"
  } 2>&1 | tee "${log}"
  code="${PIPESTATUS[0]}"
  ((code == 0)) || verdict=FAIL
  ((code != 124 && code != 137)) || verdict="FAIL, not done after ${limit} s"
  echo "exit code ${code}" >>"${log}"
  echo "${name}: ${verdict} (exit code ${code}, $((SECONDS - start)) s)" >>"${summary}"
  echo "| ${name} | ${verdict} | $((SECONDS - start)) |" >>"${rows}"
}

# record_tests NAME COMMAND...: records COMMAND, which runs GoogleTest's tests, as NAME_0, NAME_1 and so on:
# in so many processes at a time, each with its share of the tests, since most of a test's time is the
# CPU's, which computes what the GPU's results are compared with. Each writes files to a folder of its own.
record_tests() {
  local name="$1" files shard
  files="$(mktemp --directory --tmpdir lockstep-check.XXXXXX)" || fail "there is no room for the tests' files"
  for ((shard = 0; shard < jobs; ++shard)); do
    mkdir "${files}/${shard}" || fail "there is no room for the tests' files"
    record "${name}_${shard}" env TEST_TMPDIR="${files}/${shard}" GTEST_TOTAL_SHARDS="${jobs}" \
      GTEST_SHARD_INDEX="${shard}" "${@:2}" &
  done
  wait
  rm -rf "${files}"
}

# note WORDS...: what a reader of the summary should know.
note() {
  echo "note: $*" | tee -a "${summary}"
}

hardware() {
  local torch='import torch; print("PyTorch", torch.__version__, "for CUDA", torch.version.cuda)'
  record packed cat "${root}/commit"
  record gpu nvidia-smi
  record processor lscpu
  record libraries "${root}/run" lockstep gpu_versions
  if "${python}" -c 'import torch' 2>/dev/null; then
    record pytorch "${python}" -c "${torch}"
  else
    note "${python} has no PyTorch"
  fi
}

count_gpus() {
  nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU'
}

tests() {
  local filter="${tests}-${rank_tests}" gpus
  gpus="$(count_gpus)"
  if ((gpus < 2)); then
    note "the tests of NCCL take two GPUs, and are left out: this machine has ${gpus}"
    filter+=':Nccl*'
  fi
  record_tests tests "${root}/run" lockstep gpu_tests --gtest_filter="${filter}"
}

presets() {
  local gpus visible="${CUDA_VISIBLE_DEVICES:-0}"
  local presets=("${root}/run" lockstep gpu_tests --gtest_filter="${rank_tests}")
  gpus="$(count_gpus)"
  record_tests presets_shared env CUDA_VISIBLE_DEVICES="${visible%%,*}" LOCKSTEP_TEST_GPUS=shared "${presets[@]}"
  if ((gpus < 4)); then
    note "the presets over NCCL take four GPUs, and are left out: this machine has ${gpus}"
  else
    record_tests presets_nccl "${presets[@]}"
  fi
}

curves() {
  record curves "${root}/curves" --jobs "${jobs}" --out "${results}/curves" "${curves}"
}

benchmarks() {
  # PyTorch is to find its own libraries, not those that `run` finds for ours.
  local own="${results}/python"
  printf '#!/usr/bin/env bash\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "${LD_LIBRARY_PATH:-}" "${python}" >"${own}"
  chmod +x "${own}"
  # With a line for each choice among cuBLASLt's and cuDNN's algorithms.
  record benchmarks env GLOG_v="${GLOG_v:-1}" "${root}/run" lockstep gpu_training --python "${own}" --torch_peer "${torch_peer}"
}

sanitizer() {
  local program tool options
  program="$(command -v compute-sanitizer)" || program=/usr/local/cuda/bin/compute-sanitizer
  for tool in ${tools//,/ }; do
    options=(--tool "${tool}" --target-processes all --error-exitcode 1)
    case "${tool}" in
      # Tests make calls fail on purpose, and judge that themselves.
      memcheck) options+=(--report-api-errors no) ;;
      # Kernels of NVIDIA's libraries are not ours to judge. The other tools must see what these write.
      racecheck) options+=(--kernel-regex kns=lockstep) ;;
    esac
    record_tests "${tool}" "${program}" "${options[@]}" "${root}/run" lockstep gpu_tests \
      --gtest_filter="${tests}-${rank_tests}:Nccl*"
  done
}

# tests_of_items: a row for each line of the folder's items, with how many of its tests ran and passed. One
# that began and did not end, since the program was ended, has run.
tests_of_items() {
  local logs=()
  mapfile -t logs < <(ls "${results}"/{tests,presets_shared,presets_nccl}_*.txt 2>/dev/null)
  ((${#logs[@]} > 0)) || return 0
  printf '\n| tests of | ran | passed |\n|---|---|---|\n'
  awk -F '\t' '
    # A filter of GoogleTest as a regular expression.
    function expression(filter) {
      gsub(/\./, "[.]", filter)
      gsub(/\*/, ".*", filter)
      gsub(/:/, "|", filter)
      return "^(" filter ")$"
    }
    FILENAME == ARGV[1] { if ($0 !~ /^#/) { ++items; filters[items] = expression($1); names[items] = $2 }; next }
    match($0, /^\[ RUN      \] /) || match($0, /^\[       OK \] /) {
      test = substr($0, RLENGTH + 1)
      sub(/ \([0-9]+ ms\)$/, "", test)
      for (i = 1; i <= items; ++i) if (test ~ filters[i]) ++count[i, $0 ~ /RUN/]
    }
    END { for (i = 1; i <= items; ++i) printf "| %s | %d | %d |\n", names[i], count[i, 1], count[i, 0] }
  ' "${root}/items" "${logs[@]}"
}

for part in "${parts[@]}"; do "${part}"; done

printf '\n== summary, %s\n' "${results}"
cat "${summary}"
{
  printf '\n%s, commit %s, %s\n\n' "$(date --iso-8601)" "$(cat "${root}/commit")" \
    "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort | uniq -c |
      awk '{ $1 = $1 " x"; print }' | paste -sd ';')"
  printf '| what | result | seconds |\n|---|---|---|\n'
  cat "${rows}"
  tests_of_items
} | tee "${results}/table.md"
rm -f "${rows}"
grep -q ': PASS' "${summary}" && ! grep -q ': FAIL' "${summary}"
