#!/usr/bin/env bash
# Mutates inputs of each fuzz target for some time, from the corpora in tools/hostile/fuzz/corpus:
#
#   ./bazelw run --config=fuzz //tools/hostile/fuzz -- 600                  # ten minutes for each
#   ./bazelw run --config=fuzz //tools/hostile/fuzz -- 60 config cluster    # these alone
#
# An input that crashes a target, takes more than 10 s, or more memory than libfuzzer.cc allows for
# its size, is left in FOUND (by default /tmp/lockstep_fuzz/<target>), beside the inputs that reach
# new code, from which the next call goes on. Keep it in the corpus once it is mended, where
# //tools/hostile/fuzz:replay_test tries it for ever. The exit code is 1 if any was found.
set -uo pipefail

if (($# == 0)) || ! [[ "$1" =~ ^[0-9]+$ ]] || (($1 == 0)); then
  echo "usage: fuzz SECONDS [TARGET ...]" >&2
  exit 1
fi
seconds="$1"
shift
programs="${PWD}/tools/hostile/fuzz"
corpora="${BUILD_WORKSPACE_DIRECTORY:?start it with ./bazelw run}/tools/hostile/fuzz/corpus"
found="${FOUND:-/tmp/lockstep_fuzz}"
targets=("$@")
if ((${#targets[@]} == 0)); then
  for program in "${programs}"/*_fuzzer; do
    targets+=("$(basename "${program}" _fuzzer)")
  done
fi
for target in "${targets[@]}"; do
  if [[ ! -x "${programs}/${target}_fuzzer" ]]; then
    echo "fuzz: there is no target ${target}: $(cd "${programs}" && ls -d ./*_fuzzer)" >&2
    exit 1
  fi
done

failed=0
for target in "${targets[@]}"; do
  mkdir -p "${found}/${target}/inputs" || exit 1
  log="${found}/${target}/log"
  (
    cd "${found}/${target}" &&
      "${programs}/${target}_fuzzer" -max_total_time="${seconds}" -max_len=65536 -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="${found}/${target}/" \
        inputs "${corpora}/${target}"
  ) &>"${log}"
  code=$?
  number() { awk -v name="stat::$1:" '$1 == name { print $2 }' "${log}"; }
  coverage="$(grep -oE 'cov: [0-9]+' "${log}" | tail -n 1)"
  if ((code == 0)); then
    echo "${target}: $(number number_of_executed_units) inputs in ${seconds} s, ${coverage}," \
      "$(number peak_rss_mb) MB at most"
  else
    failed=1
    echo "${target}: failed, see ${log}"
    grep -E '^(==[0-9]+==ERROR|SUMMARY|F[0-9]{8}|.*runtime error|artifact_prefix)' "${log}" | head -n 8
  fi
done
exit "${failed}"
