#!/usr/bin/env bash
# dying_ranks.sh FILE WORKER FOLDER PROGRAM [ARGUMENT]...: starts a worker of //tools/launch with dying_ranks/main
# in place of PROGRAM, which is strategies/mesh/main. FILE says where its ranks die (call_kill.h).
set -euo pipefail
export LOCKSTEP_CALL_KILL=$1
exec "$2" "$3" "$(realpath "$(dirname "$0")")/dying_ranks/main" "${@:5}"
