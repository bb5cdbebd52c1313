#!/usr/bin/env bash
# pack_test PROGRAM...: what is packed trains, without the libraries of this machine but glibc and CUDA.
set -u

folder="${TEST_TMPDIR}/packed"
failures=0
fail() {
  echo "FAIL: $*"
  failures=$((failures + 1))
}

tools/portable/pack "$@" "${folder}" || fail "pack ended with $?"
tools/portable/pack "$@" "${folder}" 2>&1 | grep -q "is there already" || fail "a folder was overwritten"

# What the loader opens lies in the folder.
elsewhere="$(env -i PATH=/usr/bin:/bin LD_TRACE_LOADED_OBJECTS=1 "${folder}/run" lockstep |
  grep -F '=> /' | grep -Ev '/lib(c|m|dl|pthread|rt)\.so|/lib(cublas|cudnn|nccl)' | grep -Fv "${folder}/lib/")"
[[ -z "${elsewhere}" ]] || fail "taken from the machine: ${elsewhere}"

cd "${TEST_TMPDIR}" || exit 1
workload="${folder}/experiments/gpt_markov"
env -i PATH=/usr/bin:/bin "${folder}/run" lockstep ddp --config "${workload}/workload.toml" \
  --config "${workload}/ddp.toml" --set train.steps=2 --set run.threads=1 --out out >log 2>&1 ||
  fail "training: $(cat log)"
# The first two steps of the expected curve, which a machine may round otherwise.
diverged="$(paste -d , out/losses.csv "${workload}/expected_loss.csv" | head -3 |
  awk -F , 'NR > 1 && ($1 != $3 || ($2 - $4) ^ 2 > (1e-5 * $4) ^ 2); END { if (NR != 3) print NR }')"
[[ -z "${diverged}" ]] || fail "not the expected losses: ${diverged}"

env -i PATH=/usr/bin:/bin "${folder}/run" lockstep dpp 2>&1 | grep -q 'there is none "dpp"' ||
  fail "no message about a strategy that is none"
env -i PATH=/usr/bin:/bin "${folder}/run" other 2>&1 | grep -q "one of: .*lockstep" ||
  fail "no message about a program that is none"

((failures == 0))
