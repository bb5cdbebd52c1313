#!/usr/bin/env bash
# What check starts and makes of it: all that it calls, nvidia-smi and compute-sanitizer included, are
# stand-ins that write down how they were called and fail where they are told to.
set -uo pipefail

box="${TEST_TMPDIR}/box"
mkdir -p "${box}/packed" "${box}/bin"
install -m 755 tools/portable/check.sh "${box}/packed/check"
printf '# head\n*.MaxPool/*:Sharing.*\tpooling\nNccl*\tNCCL\n*.Max*\tmaxima\n' >"${box}/packed/items"
echo 1234567 >"${box}/packed/commit"

failures=0
fail() {
  echo "FAIL: $*"
  failures=$((failures + 1))
}

# stand_in PATH: fails for calls with the words of ${FAILING}; two GPUs if ${GPUS} says so.
stand_in() {
  cat >"${box}/$1" <<'END'
#!/usr/bin/env bash
if [[ "$1" == --query-gpu=* ]]; then  # for the table's head, whatever was asked for
  for _ in $(seq "${GPUS}"); do echo "NVIDIA Made Up, 580.1"; done
  exit
fi
# Told by the environment; what tests print, of which one ends its program.
if [[ "$*" == *"gpu_training"* ]]; then echo "benchmarks with GLOG_v=${GLOG_v:-}" >>"${BOX}/calls"; fi
if [[ "$*" == *"=Presets*"* ]]; then
  echo "presets on GPUs ${LOCKSTEP_TEST_GPUS:-of their own}, visible ${CUDA_VISIBLE_DEVICES:-all}" >>"${BOX}/calls"
  printf '[ RUN      ] Sharing.Bits/ddp\n[       OK ] Sharing.Bits/ddp (7 ms)\n'
elif [[ "$*" == *"gpu_tests"* ]]; then
  printf '[ RUN      ] Cuda/Suite.MaxPool/F32\n[       OK ] Cuda/Suite.MaxPool/F32 (12 ms)\n'
  printf '[ RUN      ] Cuda/Suite.MaxPool/F16\n[  FAILED  ] Cuda/Suite.MaxPool/F16, where GetParam() = 1 (3 ms)\n'
  printf '[ RUN      ] Cuda/Suite.MaxPoolOfOne/F16\nSegmentation fault\n'
fi
if [[ "$*" == *"=Cuda"* ]]; then echo "process ${GTEST_SHARD_INDEX} of ${GTEST_TOTAL_SHARDS}, files $(ls -d "${TEST_TMPDIR}")" >>"${BOX}/calls"; fi
echo "$(basename "$0") $*" >>"${BOX}/calls"
if [[ "$1" == --list-gpus ]]; then seq -f 'GPU %g' "${GPUS}"; fi
if [[ -n "${SLEEPING}" && "$*" == *"${SLEEPING}"* ]]; then sleep 60; fi
[[ -z "${FAILING}" || "$*" != *"${FAILING}"* ]]
END
  chmod +x "${box}/$1"
}
for program in packed/run packed/curves bin/nvidia-smi bin/lscpu bin/compute-sanitizer bin/python; do
  stand_in "${program}"
done

# check ARGUMENT...: runs it; leaves exit code, output, calls and summary.
check() {
  rm -rf "${box}/calls" "${box}/results"
  output="$(PATH="${box}/bin:${PATH}" BOX="${box}" GPUS="${GPUS:-1}" FAILING="${FAILING:-}" \
    SLEEPING="${SLEEPING:-}" "${box}/packed/check" --results "${box}/results" --python "${box}/bin/python" \
    "$@" 2>&1)"
  code=$?
  calls="$(cat "${box}/calls" 2>/dev/null)"
  summary="$(cat "${box}/results/summary.txt" 2>/dev/null)"
}

check
[[ ${code} == 0 ]] || fail "all passes: exit code ${code}: ${output}"
for call in "nvidia-smi " "run lockstep gpu_versions" "run lockstep gpu_tests --gtest_filter=*-Presets*:Gpus*:Nccl*" \
  "run lockstep gpu_tests --gtest_filter=Presets*:Gpus*" "presets on GPUs shared, visible 0" "benchmarks with GLOG_v=1" \
  "curves --jobs 8 --out ${box}/results/curves *" \
  "run lockstep gpu_training --python ${box}/results/python --torch_peer "; do
  grep -qFx -- "${call}" <<<"${calls}" || fail "all: no call ${call} in ${calls}"
done
for tool in memcheck racecheck initcheck synccheck; do
  grep -q -- "compute-sanitizer --tool ${tool} .* lockstep gpu_tests --gtest_filter=\*-Presets\*:Gpus\*:Nccl\*$" <<<"${calls}" ||
    fail "all: no ${tool} in ${calls}"
done
grep -q "note: the tests of NCCL .* left out: this machine has 1" <<<"${summary}" || fail "no note: ${summary}"
grep -q "note: the presets over NCCL .* left out: this machine has 1" <<<"${summary}" || fail "no note: ${summary}"
# Tests, presets and each tool run in eight processes.
[[ "$(grep -c ': PASS' <<<"${summary}")" == 55 ]] || fail "all: ${summary}"
# The table to paste: a head, and a row for each command.
table="$(cat "${box}/results/table.md")"
grep -q "^20..-..-.., commit 1234567, 1 x NVIDIA Made Up, 580.1$" <<<"${table}" || fail "no head: ${table}"
[[ "$(grep -cE '^\| [a-z_0-9]+ \| PASS \| [0-9]+ \|$' <<<"${table}")" == 55 ]] || fail "table: ${table}"
# How many tests of each item ran and passed: of the tests and the presets, under no sanitizer.
for row in "| tests of | ran | passed |" "| pooling | 24 | 16 |" "| NCCL | 0 | 0 |" "| maxima | 24 | 8 |"; do
  grep -qFx -- "${row}" <<<"${table}" || fail "items: no ${row} in ${table}"
done
[[ "${output}" == *"${table}" ]] || fail "the table is not printed last: ${output}"

GPUS=2 check tests
grep -qFx "run lockstep gpu_tests --gtest_filter=*-Presets*:Gpus*" <<<"${calls}" || fail "two GPUs: ${calls}"
GPUS=4 CUDA_VISIBLE_DEVICES=4,5,6,7 check presets
for call in "presets on GPUs shared, visible 4" "presets on GPUs of their own, visible 4,5,6,7"; do
  grep -qFx -- "${call}" <<<"${calls}" || fail "four GPUs: no ${call} in ${calls}"
done
[[ "${summary}" != *note* ]] || fail "four GPUs: ${summary}"
GPUS=2 check presets
[[ "${summary}" == *"note: the presets over NCCL"*"has 2"* ]] || fail "two GPUs: ${summary}"
check hardware
[[ "${output}" != *"tests of"* ]] || fail "items without tests: ${output}"

# One that fails: the others run, and the exit code tells.
for failing in "lockstep gpu_tests --gtest_filter" "--jobs" "gpu_training" "--tool racecheck"; do
  FAILING="${failing}" check
  [[ ${code} == 1 ]] || fail "${failing}: exit code ${code}"
  grep -q ': FAIL (exit code 1' <<<"${summary}" || fail "${failing}: ${summary}"
  grep -qF -- "--tool synccheck" <<<"${calls}" || fail "${failing}: the end was not reached"
done
grep -q 'racecheck_7: FAIL' <<<"${output}" || fail "the summary is not shown"
grep -qE '^\| racecheck_7 \| FAIL \|' <<<"${output}" || fail "the table hides a failure"
grep -qx 'exit code 1' "${box}/results/racecheck_7.txt" || fail "no exit code in the output's file"

# One that never ends.
SLEEPING=gpu_training check --limit 1 benchmarks hardware
grep -q 'benchmarks: FAIL, not done after 1 s' <<<"${summary}" || fail "no limit: ${summary}"
grep -q '^processor: ' <<<"${summary}" || fail "nothing after the limit: ${summary}"

# Chosen parts, and within them.
check --jobs 1 --tools initcheck --tests 'Cuda*' sanitizer
[[ "$(grep -vc '^process' <<<"${calls}")" == 1 && "${calls}" == *"--tool initcheck"*"--gtest_filter=Cuda*-Presets*:Gpus*:Nccl*" ]] ||
  fail "chosen: ${calls}"
check --jobs 2 --tests 'Cuda*' tests
[[ "$(grep -c '^process [01] of 2, files /' <<<"${calls}")" == 2 &&
  "$(grep -o 'files .*' <<<"${calls}" | sort -u | wc -l)" == 2 ]] || fail "processes: ${calls}"
check --curves 'gpt_*:single' --jobs 2 curves
[[ "${calls}" == "curves --jobs 2 --out ${box}/results/curves gpt_*:single" ]] || fail "chosen: ${calls}"

# What asks for nothing that there is.
for wrong in gpu --limits --limit "--torch_peer nowhere" "--jobs none" "--jobs 0"; do
  # shellcheck disable=SC2086  # two words
  check ${wrong}
  [[ ${code} == 1 && -z "${summary}" ]] || fail "${wrong}: exit code ${code}"
done
FAILING='import torch' check --torch_peer "${box}/calls" benchmarks
[[ ${code} == 1 && "${output}" == *"no file"* ]] || fail "no file: ${output}"
FAILING='import torch' check --torch_peer "${box}/packed/commit" benchmarks
[[ ${code} == 1 && "${output}" == *"no PyTorch"* ]] || fail "no PyTorch: ${output}"
check --torch_peer "${box}/packed/commit" benchmarks
[[ ${code} == 0 && "${calls}" == *"gpu_training"*"--torch_peer ${box}/packed/commit" ]] || fail "a peer: ${calls}"
grep -qx "LD_LIBRARY_PATH=libraries exec ${box}/bin/python \"\$@\"" \
  <(LD_LIBRARY_PATH=libraries check benchmarks && cat "${box}/results/python") || fail "PyTorch's libraries"
FAILING='import torch' check hardware
[[ ${code} == 0 && "${summary}" == *"note: ${box}/bin/python has no PyTorch"* ]] || fail "PyTorch: ${summary}"

((failures == 0))
