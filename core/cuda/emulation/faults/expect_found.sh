#!/usr/bin/env bash
# expect_found.sh PROGRAM TESTS MESSAGE: runs the GoogleTest tests TESTS of PROGRAM, which has a fault
# in it, and passes if they fail and their output has a line that matches MESSAGE. A fault that only
# some orders of streams bring to light gets eight of them.
set -uo pipefail
unset XML_OUTPUT_FILE # this test passes where the program inside of it fails
first="${LOCKSTEP_EMULATED_SEED:-${TEST_RUN_NUMBER:-1}}"
for ((seed = first; seed < first + 8; ++seed)); do
  output="$(LOCKSTEP_EMULATED_SEED="${seed}" "$1" --gtest_filter="$2" 2>&1)"
  status=$?
  ((status == 0)) || break
done
if ((status == 0)); then
  echo "the fault was not found: all of these tests passed, with eight orders of streams"
elif ! grep -Eq "$3" <<<"${output}"; then
  echo "exit code ${status}, but no line matches: $3"
else
  exit 0
fi
head -c 20000 <<<"${output}"
exit 1
