#!/usr/bin/env bash
# pack_test PROGRAM...: what is packed trains and checks itself, without the libraries of this machine
# but glibc; on the CPU without NVIDIA's.
set -u

folder="${TEST_TMPDIR}/packed"
failures=0
fail() {
  echo "FAIL: $*"
  failures=$((failures + 1))
}

tools/portable/pack "$@" "${folder}" || fail "pack ended with $?"
tools/portable/pack "$@" "${folder}" 2>&1 | grep -q "is there already" || fail "a folder was overwritten"

# A folder that has grown too large is refused with its size and what is largest in it, and nothing is left.
cp /bin/true "${TEST_TMPDIR}/large" && truncate --size=60000000 "${TEST_TMPDIR}/large"
output="$(tools/portable/pack "${TEST_TMPDIR}/large" "${TEST_TMPDIR}/refused" 2>&1)" && fail "no limit: ${output}"
[[ "${output}" =~ pack:\ 6[0-9]{7}\ bytes\ are\ more\ than\ 60000000:.*60000000.*/bin/large ]] || fail "limit: ${output}"
[[ -z "$(ls -d "${TEST_TMPDIR}"/refused* 2>/dev/null)" ]] || fail "limit: $(ls -d "${TEST_TMPDIR}"/refused*) is left"
truncate --size=5000000 "${TEST_TMPDIR}/large"
tools/portable/pack "${TEST_TMPDIR}/large" "${TEST_TMPDIR}/accepted" || fail "5 MB are refused"

# What the loader opens lies in the folder.
elsewhere="$(env -i PATH=/usr/bin:/bin LD_TRACE_LOADED_OBJECTS=1 "${folder}/run" lockstep |
  grep -F '=> /' | grep -Ev '/lib(c|m|dl|pthread|rt)\.so' | grep -Fv "${folder}/lib/")"
[[ -z "${elsewhere}" ]] || fail "taken from the machine: ${elsewhere}"

cd "${TEST_TMPDIR}" || exit 1
workload="${folder}/experiments/gpt_markov"
# A word without quotes is an exception inside toml++: raised in one library, caught in another.
env -i PATH=/usr/bin:/bin "${folder}/run" lockstep ddp --config "${workload}/workload.toml" \
  --set train.steps=2 --set run.threads=1 --set checkpoint.files=whole \
  --out out >log 2>&1 ||
  fail "training: $(cat log)"
# The first two steps of the expected curve, which a machine may round otherwise.
diverged="$(paste -d , out/losses.csv "${workload}/expected_loss.csv" | head -3 |
  awk -F , 'NR > 1 && ($1 != $3 || ($2 - $4) ^ 2 > (1e-5 * $4) ^ 2); END { if (NR != 3) print NR }')"
[[ -z "${diverged}" ]] || fail "not the expected losses: ${diverged}"

# bare COMMAND...: runs it in the folder, without this shell's environment; leaves exit code and output.
bare() {
  output="$(env -i PATH=/usr/bin:/bin TMPDIR="${TEST_TMPDIR}" "${folder}/$1" "${@:2}" 2>&1)"
  code=$?
}

# What the experiments' scripts start is there.
for program in "${folder}"/strategies/*/main "${folder}/tools/curve/curve"; do
  bare "${program#"${folder}"/}" --help
  [[ "${output}" == *"Trains a model with the strategy"* || "${output}" == *"Checks the loss curve"* ]] ||
    fail "${program}: ${output}"
done

# A curve test, which holds the GPU's tolerance on the CPU too: by itself, and where the expected
# curve has moved by more than that.
bare curves --device cpu --jobs 2 --out curves 'toy_layerwise:*'
[[ ${code} == 0 && "${output}" == *"2 of 2 passed on cpu"* ]] || fail "curves: ${output}"
grep -q '^repeat: PASS, 20 steps' curves/toy_layerwise.layerwise.txt || fail "no second run"
expected="${folder}/experiments/toy_layerwise/expected_loss.csv"
awk -F , -v OFS=, '$1 == 7 { $2 *= 1.0001 } { print }' "${expected}" >moved && mv moved "${expected}"
bare curves --device cpu 'toy_layerwise:single'
[[ ${code} == 1 && "${output}" == *"FAIL toy_layerwise:single"*"repeat: PASS"*"golden: FAIL"*"at step 7"* ]] ||
  fail "curves after a change: ${output}"
bare curves --device cpu 'toy:*'
[[ ${code} == 1 && "${output}" == *"no curve test to run"* ]] || fail "curves of none: ${output}"
bare curves --device cpu 'gpt_shakespeare:*'
[[ ${code} == 1 && "${output}" == *"8 on real data are left out"* ]] || fail "curves of real data: ${output}"

# Without a GPU nothing passes that needs one.
if ! nvidia-smi >/dev/null 2>&1; then
  bare check --results checked --jobs 1 --curves 'toy_layerwise:single'
  for name in gpu libraries tests_0 presets_shared_0 curves benchmarks {memcheck,racecheck,initcheck,synccheck}_0; do
    grep -q "^${name}: FAIL" checked/summary.txt || fail "check: ${name}: ${output}"
  done
  ((code == 1)) || fail "check: exit code ${code}"
fi

# Each command has its own flags, and no other's.
bare run lockstep --help
[[ ${code} == 0 && "${output}" == *"one of single, naive_ddp, ddp,"*" curve"* ]] || fail "help: ${code}: ${output}"
bare run lockstep ddp --candidate=x
[[ ${code} == 1 && "${output}" == *"unknown argument '--candidate'"* ]] || fail "a flag of curve: ${output}"
bare run lockstep curve --set a=b
[[ ${code} == 1 && "${output}" == *"unknown argument '--set'"* ]] || fail "a flag of ddp: ${output}"

env -i PATH=/usr/bin:/bin "${folder}/run" lockstep dpp 2>&1 | grep -q 'there is none "dpp"' ||
  fail "no message about a strategy that is none"
env -i PATH=/usr/bin:/bin "${folder}/run" other 2>&1 | grep -q "one of: .*lockstep" ||
  fail "no message about a program that is none"

((failures == 0))
