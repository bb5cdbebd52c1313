#!/usr/bin/env bash
# mpi_test.sh RANKS PROGRAM [ARGUMENT]...: runs a program under mpirun, on this machine alone, for tests
# and for :certify of an experiment.
set -euo pipefail

# Containers' root is an ordinary user, who may have fewer cores than ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Sockets in the test's own folder would have longer names than the system allows.
export TMPDIR=/tmp
# Other ways to share memory need rights that sandboxes often lack.
export OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
# Under --config=asan: what Open MPI's plugins keep to the end is no leak of ours, and LeakSanitizer
# cannot tell, for they are unloaded by then.
export ASAN_OPTIONS="${ASAN_OPTIONS:+${ASAN_OPTIONS}:}detect_leaks=0"
# Nobody else's machine is asked.
export OMPI_MCA_plm=isolated OMPI_MCA_oob_tcp_if_include=lo

exec mpirun --oversubscribe --bind-to none -n "$1" "${@:2}"
