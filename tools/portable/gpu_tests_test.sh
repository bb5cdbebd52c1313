#!/usr/bin/env bash
# gpu_tests_test PROGRAM: each filter of check's items selects tests of PROGRAM, so that a test which is renamed
# does not leave its row of the table empty; and a test that starts its program again starts PROGRAM's tests.
set -uo pipefail

failures=0
filters=0
while IFS=$'\t' read -r patterns what; do
  [[ "${patterns}" == \#* ]] && continue
  IFS=: read -ra filters_of_item <<<"${patterns}"
  for pattern in "${filters_of_item[@]}"; do
    filters=$((filters + 1))
    "$1" gpu_tests --gtest_list_tests --gtest_filter="${pattern}" >/dev/null && continue
    echo "FAIL: ${what}: no test matches ${pattern}"
    failures=$((failures + 1))
  done
done <tools/portable/items.tsv

"$1" gpu_tests --gtest_filter=LayerNormTest.OperandsOfAnotherDtypeAreRefused || failures=$((failures + 1))
((filters > 0 && failures == 0))
