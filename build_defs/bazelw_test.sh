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

# bazel_that DOES: a bazel of ${BAZEL_VERSION} that writes its call down as the body says.
bazel_that() {
  stand_in bazel <<END
if [[ "\$1" == --version ]]; then echo "bazel \${BAZEL_VERSION:-no_version}"; exit; fi
$1
END
}
bazel_that 'echo "bazel $*" >>"${BOX}/calls"; exit 42'
export LOCKSTEP_OS_RELEASE="${box}/os-release"
printf 'ID=debian\nVERSION_ID="12"\n' >"${LOCKSTEP_OS_RELEASE}"

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
bazel_that 'echo "bazel $* with ${LOCKSTEP_DATA}" >>"${BOX}/calls"'
LOCKSTEP_DATA=../data run test
[[ "${calls}" == "bazel test with ${box}/repo/../data" ]] || fail "relative data: called ${calls}"
LOCKSTEP_DATA=/data run test
[[ "${calls}" == "bazel test with /data" ]] || fail "absolute data: called ${calls}"
bazel_that 'echo "bazel $*" >>"${BOX}/calls"; exit 42'

# A newer Bazel is told to read WORKSPACE, while it can.
for version in 7 8; do
  BAZEL_VERSION="${version}.1.0" run build //...
  [[ "${calls}" == "bazel build --noenable_bzlmod"*" //..." ]] || fail "Bazel ${version}: called ${calls}"
  [[ "${output}" == *"Bazel ${version} reads WORKSPACE only with"* ]] || fail "said ${output}"
done
[[ "${calls}" == *--enable_workspace* ]] || fail "Bazel 8: called ${calls}"
BAZEL_VERSION=9.0.0 run build //...
[[ ${code} == 1 && -z "${calls}" ]] || fail "Bazel 9: exit code ${code}, called ${calls}"
[[ "${output}" == *"no WORKSPACE mode"*"Bazel 8 or earlier"* ]] || fail "Bazel 9: said ${output}"

# Other systems have other names, or lack something.
mkdir "${box}/repo/third_party/systems"
printf '# names\ntwo is zwei\n' >"${box}/repo/third_party/systems/ubuntu-24.04.txt"
printf 'two is none it was never packaged\n' >"${box}/repo/third_party/systems/ubuntu-22.04.txt"
printf 'ID=ubuntu\nVERSION_ID="24.04"\n' >"${LOCKSTEP_OS_RELEASE}"
run build //...
expected=$'apt-get install --yes --no-install-recommends zwei\nbazel build //...'
[[ "${calls}" == "${expected}" ]] || fail "other name: called ${calls}"
[[ "${output}" == *"tried on Debian 12; of ubuntu-24.04 only the names"* ]] || fail "other name: said ${output}"
printf 'ID=ubuntu\nVERSION_ID="22.04"\n' >"${LOCKSTEP_OS_RELEASE}"
run build //...
[[ ${code} == 1 && -z "${calls}" ]] || fail "no package: exit code ${code}, called ${calls}"
[[ "${output}" == *"ubuntu-22.04 has no two: it was never packaged"* ]] || fail "said ${output}"
printf 'ID=arch\n' >"${LOCKSTEP_OS_RELEASE}"
run build //...
[[ ${code} == 42 && "${output}" == *"has not been tried"* ]] || fail "unknown system: ${output}"
printf 'ID=debian\nVERSION_ID="12"\n' >"${LOCKSTEP_OS_RELEASE}"

printf 'two\n' >"${box}/installed"
run build //...
[[ ${code} == 42 ]] || fail "one missing: exit code ${code}"
expected=$'apt-get install --yes --no-install-recommends one-dev\nbazel build //...'
[[ "${calls}" == "${expected}" ]] || fail "one missing: called ${calls}"
[[ "${output}" == *"installing 1 missing"*one-dev* ]] || fail "one missing: said ${output}"
[[ "${output}" != *"only the names"* ]] || fail "Debian 12: said ${output}"

: >"${box}/installed"
: >"${box}/apt_works"
run build //...
[[ ${code} == 1 ]] || fail "failing apt-get: exit code ${code}"
[[ "${calls}" == *"apt-get update"* && "${calls}" != *bazel* ]] || fail "failing: called ${calls}"
[[ "${output}" == *"could not install: one-dev two"* ]] || fail "failing: said ${output}"

# //tools:format has a list of its own.
printf 'pretty-printer\n' >"${box}/repo/third_party/packages.format.txt"
echo yes >"${box}/apt_works"
printf 'one-dev\ntwo\n' >"${box}/installed"
run run //tools:format
[[ "${calls}" == *"install"*pretty-printer* ]] || fail "format: called ${calls}"

# For --config=cuda the headers of cuDNN's frontend are fetched once, and again when what is wanted
# changes; the build goes on without them. Python is a stand-in for pip and zipfile.
frontend="${box}/repo/third_party/cudnn_frontend"
mkdir "${frontend}"
printf 'frontend==1\n' >"${frontend}/requirements.txt"
for tool in cmp mktemp mkdir mv cp rm; do ln -s "$(command -v "${tool}")" "${box}/bin/${tool}"; done
stand_in python3 <<'END'
echo "python3 $2 $3" >>"${BOX}/calls"
[[ "$2" != pip || -n "$(cat "${BOX}/pip_works")" ]] || exit 1
while (($# > 0)); do
  [[ "$1" == --dest ]] && : >"$2/some.whl"
  if [[ "$1" == -e ]]; then
    mkdir -p "$3/include" "$3/some.dist-info/licenses"
    : >"$3/include/a.h"
    : >"$3/some.dist-info/licenses/LICENSE.txt"
  fi
  shift
done
END
: >"${box}/pip_works"
fetching=$'python3 pip download\n'
run build --config=cuda //...
[[ ${code} == 42 && "${calls}" == "${fetching}bazel build --config=cuda //..." ]] ||
  fail "no headers: exit code ${code}, called ${calls}"
[[ "${output}" == *"our own kernels compute attention"* ]] || fail "no headers: said ${output}"
[[ "$(ls "${frontend}")" == requirements.txt ]] || fail "no headers: left $(ls "${frontend}")"
echo yes >"${box}/pip_works"
run build //...
[[ "${calls}" == "bazel build //..." ]] || fail "without CUDA: called ${calls}"
for version in 1 2; do
  printf 'frontend==%s\n' "${version}" >"${frontend}/requirements.txt"
  run build --config=cuda //...
  [[ ${code} == 42 && "${calls}" == "${fetching}"* ]] || fail "frontend ${version}: called ${calls}"
  [[ -e "${frontend}/fetched/include/a.h" && -e "${frontend}/fetched/LICENSE.txt" ]] ||
    fail "frontend ${version}: no headers"
  [[ "$(ls "${frontend}" | tr '\n' ' ')" == "fetched requirements.txt " ]] ||
    fail "frontend ${version}: left $(ls "${frontend}")"
  run build --config=cuda //...
  [[ "${calls}" == "bazel build --config=cuda //..." && -z "${output}" ]] ||
    fail "frontend ${version}, there already: called ${calls}"
done
: >"${box}/pip_works"
printf 'frontend==3\n' >"${frontend}/requirements.txt"
run build --config=cuda //...
[[ ${code} == 42 && ! -e "${frontend}/fetched" ]] || fail "another version than is wanted was left"

# The real list can be parsed: names only.
if sed -e 's/#.*//' -e '/^[[:space:]]*$/d' third_party/packages.txt |
  grep -Evx '[a-z0-9][a-z0-9+.-]+'; then
  fail "third_party/packages.txt has a line that is no package name"
fi

# The Dockerfile has no list of its own: the files that it copies, and its call of bazelw on an image
# without packages, install the whole real list and nothing else.
image="${box}/image"
while read -ra words; do
  to="${image}${words[-1]}"
  [[ "${to}" == */ ]] && mkdir -p "${to}" || mkdir -p "${to%/*}"
  cp -rL ${words[@]:1:${#words[@]}-2} "${to}"  # unquoted: the shell expands what Docker would
done < <(grep '^COPY ' Dockerfile)
[[ "$(grep '^FROM ' Dockerfile)" == "FROM debian:12" ]] || fail "Dockerfile: not Debian 12"
read -ra call < <(grep -o '&& /setup/bazelw [^&]*' Dockerfile)
: >"${box}/installed"
: >"${box}/calls"
output="$(PATH="${box}/bin" BOX="${box}" "${image}${call[1]}" "${call[@]:2}" 2>&1)" ||
  fail "Dockerfile: ${call[*]:1} ended with exit code $?: ${output}"
packages="$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' third_party/packages.txt | tr '\n' ' ')"
expected="apt-get install --yes --no-install-recommends ${packages% }"
[[ "$(cat "${box}/calls")" == "${expected}" ]] ||
  fail "Dockerfile: called $(cat "${box}/calls"), where the list is ${packages}"

((failures == 0)) && echo "bazelw: all cases as expected"
exit "$((failures > 0))"
