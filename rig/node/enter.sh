#!/bin/bash
# Starts a node: enters the cgroups that were made for it, then namespaces of its own, and becomes init.sh there.
#
# Usage: enter.sh STATE_DIRECTORY CGROUP_DIRECTORY...
# Standard input is the listening socket of the host's side of the API server; it goes on as descriptor 3.
set -eu
state=$1
shift

for cgroup in "$@"; do
  echo $$ > "$cgroup/cgroup.procs"
done

exec 3<&0 0</dev/null
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  # cgroup v2 (never tried): the namespace's root is the node's cgroup, and the node's programs move to one below it, because
  # only a cgroup without processes can hand controllers on to those of the pods.
  exec unshare --cgroup bash -c 'echo $$ > "$1/node/cgroup.procs"
    exec unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc bash "$0/node/init.sh" "$0"' "$state" "$1"
fi
# --kill-child: who kills this process kills init.sh, PID 1 of the new PID namespace, and with it everything in there.
exec unshare --mount --net --pid --uts --ipc --cgroup --fork --kill-child --mount-proc \
  bash "$state/node/init.sh" "$state"
