#!/usr/bin/env bash
# Two hosts with a network between them, on one machine: network namespaces joined by a veth pair, whose ends
# let through no more than a rate. Each has a core of its own, and for Open MPI a host name. Needs root.
#
#   two_hosts.sh up 1gbit             makes them; the rate as tc(8) writes it
#   two_hosts.sh mpirun COMMAND...    a rank on each, over TCP
#   two_hosts.sh torchrun COMMAND...  the same as torchrun would start it: RANK, WORLD_SIZE, MASTER_ADDR
#   two_hosts.sh on HOST COMMAND...   runs a command on host lockstep-0 or lockstep-1
#   two_hosts.sh down                 removes them
set -euo pipefail

readonly hosts=(lockstep-0 lockstep-1)
readonly network=10.77.0
readonly self="$(realpath "${BASH_SOURCE[0]}")"

down() {
  for host in "${hosts[@]}"; do
    ip netns del "${host}" 2>/dev/null || true
  done
}

up() {
  local rate="$1" index
  down
  for host in "${hosts[@]}"; do
    ip netns add "${host}"
  done
  ip -n "${hosts[0]}" link add eth0 type veth peer name eth0 netns "${hosts[1]}"
  for index in 0 1; do
    ip -n "${hosts[index]}" addr add "${network}.$((index + 1))/24" dev eth0
    ip -n "${hosts[index]}" link set lo up
    ip -n "${hosts[index]}" link set eth0 up
    # A bucket for a few of the largest segments, and a queue that TCP sees no drop in.
    tc -n "${hosts[index]}" qdisc add dev eth0 root tbf rate "${rate}" burst 256kb limit 32mb
  done
}

on() {
  local host="$1"
  shift
  exec taskset --cpu-list "${host##*-}" nsenter --net="/var/run/netns/${host}" unshare --uts \
    bash -c 'hostname "$0"; exec "$@"' "${host}" "$@"
}

# Open MPI's launch agent gets the host and words for a shell.
agent() {
  local host="$1"
  shift
  on "${host}" bash -c "$*"
}

run_mpirun() {
  on "${hosts[0]}" mpirun --allow-run-as-root -n 2 --host "${hosts[0]}:1,${hosts[1]}:1" \
    --mca plm_rsh_agent "${self} agent" --bind-to none \
    --mca btl tcp,self --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 "$@"
}

run_torchrun() {
  export WORLD_SIZE=2 MASTER_ADDR="${network}.1" MASTER_PORT=29511 GLOO_SOCKET_IFNAME=eth0
  RANK=1 LOCAL_RANK=0 on "${hosts[1]}" "$@" &
  trap 'kill %1 2>/dev/null || true' EXIT
  (RANK=0 LOCAL_RANK=0 on "${hosts[0]}" "$@")
  wait %1
  trap - EXIT
}

command="${1:-}"
[[ $# -gt 0 ]] && shift
case "${command}" in
  up | down | on | agent) "${command}" "$@" ;;
  mpirun | torchrun) "run_${command}" "$@" ;;
  *)
    echo "two_hosts.sh: up RATE | mpirun COMMAND... | torchrun COMMAND... | on HOST COMMAND... | down" >&2
    exit 2
    ;;
esac
