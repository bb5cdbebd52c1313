#!/usr/bin/env bash
# ./bazelw on machines that have all packages, lack some, or are no Debian: dpkg-query, apt-get, sudo
# and bazel are stand-ins that write down how they were called.
set -uo pipefail

box="${TEST_TMPDIR}/box"
mkdir -p "${box}/repo/third_party" "${box}/bin"
cp bazelw "${box}/repo/bazelw"
packages="${box}/repo/third_party/packages.txt"
printf '# a comment\none-dev\n\ntwo\n' >"${packages}"
for tool in bash env sed dirname cat awk grep; do
  ln -s "$(command -v "${tool}")" "${box}/bin/${tool}"
done

failures=0
fail() {
  echo "FAIL: $*"
  failures=$((failures + 1))
}

# stand_in NAME: a command that reads its body from stdin.
stand_in() {
  { echo "#!${box}/bin/bash"; cat; } >"${box}/bin/$1"
  chmod +x "${box}/bin/$1"
}

# run ARGS...: runs bazelw; leaves its exit code, output and the calls of the stand-ins.
run() {
  : >"${box}/calls"
  output="$(cd "${box}/repo" && PATH="${box}/bin" BOX="${box}" ./bazelw "$@" 2>&1)"
  code=$?
  calls="$(cat "${box}/calls")"
}

stand_in bazel <<<'echo "bazel $*" >>"${BOX}/calls"; exit 42'

# No Debian: the list, and nothing is called.
run build //...
[[ ${code} == 1 ]] || fail "other system: exit code ${code}"
[[ -z "${calls}" ]] || fail "other system: called ${calls}"
[[ "${output}" == *one-dev* && "${output}" == *two* ]] || fail "other system: no list: ${output}"

# Debian from here on; `installed` lists what dpkg-query knows.
stand_in dpkg-query <<'END'
while read -r name; do echo "ii  ${name}"; done <"${BOX}/installed"
END
stand_in sudo <<<'"$@"'
stand_in apt-get <<'END'
echo "apt-get $*" >>"${BOX}/calls"
[[ "$1" == update || -n "$(cat "${BOX}/apt_works")" ]]
END
echo yes >"${box}/apt_works"

printf 'one-dev\ntwo\n' >"${box}/installed"
run test --config=asan //core/...
[[ ${code} == 42 ]] || fail "all there: exit code ${code} is not Bazel's"
[[ "${calls}" == "bazel test --config=asan //core/..." ]] || fail "all there: called ${calls}"
[[ -z "${output}" ]] || fail "all there: said ${output}"

# What is relative to the user's folder is handed on absolute.
stand_in bazel <<<'echo "bazel $* with ${LOCKSTEP_DATA}" >>"${BOX}/calls"'
LOCKSTEP_DATA=../data run test
[[ "${calls}" == "bazel test with ${box}/repo/../data" ]] || fail "relative data: called ${calls}"
LOCKSTEP_DATA=/data run test
[[ "${calls}" == "bazel test with /data" ]] || fail "absolute data: called ${calls}"
stand_in bazel <<<'echo "bazel $*" >>"${BOX}/calls"; exit 42'

printf 'two\n' >"${box}/installed"
run build //...
[[ ${code} == 42 ]] || fail "one missing: exit code ${code}"
expected=$'apt-get install --yes --no-install-recommends one-dev\nbazel build //...'
[[ "${calls}" == "${expected}" ]] || fail "one missing: called ${calls}"
[[ "${output}" == *"installing 1 missing"*one-dev* ]] || fail "one missing: said ${output}"

: >"${box}/installed"
: >"${box}/apt_works"
run build //...
[[ ${code} == 1 ]] || fail "failing apt-get: exit code ${code}"
[[ "${calls}" == *"apt-get update"* && "${calls}" != *bazel* ]] || fail "failing: called ${calls}"
[[ "${output}" == *"could not install: one-dev two"* ]] || fail "failing: said ${output}"

# The real list can be parsed: names only.
if sed -e 's/#.*//' -e '/^[[:space:]]*$/d' third_party/packages.txt |
  grep -Evx '[a-z0-9][a-z0-9+.-]+'; then
  fail "third_party/packages.txt has a line that is no package name"
fi

((failures == 0)) && echo "bazelw: all cases as expected"
exit "$((failures > 0))"
