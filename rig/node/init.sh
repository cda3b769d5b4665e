#!/bin/bash
# PID 1 of a node: makes its file systems and network, then starts Kubernetes and keeps it running.
#
# Everything here is private to the node's namespaces and vanishes with them. The state directory appears at /run/rig,
# so that the configuration files beside this script can name fixed, short paths.
#
# Usage: init.sh STATE_DIRECTORY, with the host's listening socket as descriptor 3.
set -eu
state=$1
rig=/run/rig
node_ip=10.99.0.1
services=10.96.0.0/16
network_policies=true # a cluster of another flavor has false here

# --- file systems ----------------------------------------------------------------------------------------------------

mount --make-rprivate /

# Fresh views of the cgroup hierarchies: with the cgroup namespace, their root is the cgroup that enter.sh entered, so
# that the kubelet's /kubepods lands there and not in the host's.
unified=false
[ ! -e /sys/fs/cgroup/cgroup.controllers ] || unified=true
hierarchies=() links=()
for path in /sys/fs/cgroup/*; do
  if [ -L "$path" ]; then # such as cpu -> cpu,cpuacct
    links+=("$(readlink "$path"):${path##*/}")
  elif [ "${path##*/}" != unified ]; then
    hierarchies+=("${path##*/}")
  fi
done
umount -R /sys/fs/cgroup
mount -t sysfs sysfs /sys
if $unified; then
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
  mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
  for hierarchy in "${hierarchies[@]}"; do
    options=$hierarchy
    [ "$hierarchy" != systemd ] || options=none,name=systemd
    mkdir "/sys/fs/cgroup/$hierarchy"
    mount -t cgroup -o "$options" cgroup "/sys/fs/cgroup/$hierarchy"
  done
  for link in "${links[@]}"; do
    ln -s "${link%%:*}" "/sys/fs/cgroup/${link##*:}"
  done
fi

# A new /run hides the old one. The state directory may be in there, so it waits at /mnt meanwhile.
mount --bind "$state" /mnt
mount -t tmpfs -o mode=755 run /run
mkdir -p $rig /run/netns /run/lock /run/mask /run/var.upper /run/var.work
mount --move /mnt $rig

# The kubelet and the CNI plugins write to fixed paths below /var.
mount -t overlay -o lowerdir=/var,upperdir=/run/var.upper,workdir=/run/var.work overlay /var

# Image store and container layers in memory: importing takes a third of the time, and nothing is left to delete.
mkdir -p $rig/containerd
mount -t tmpfs -o mode=711 containerd $rig/containerd

# The kubelet sets these for the whole machine. Here it sets files of its own.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file=/run/mask/${setting//\//_}
  echo "${setting#*=}" > "$file"
  mount --bind "$file" "/proc/sys/${setting%=*}"
done

# Volumes mounted by the kubelet must reach containers that run already.
mount --make-rshared /

# --- network ---------------------------------------------------------------------------------------------------------

hostname node1
# The node's address is on a bridge with no ports: the kubelet refuses a loopback address, and not every kernel has a
# dummy device. There is no way out of this network namespace, so nothing can leave it.
ip link set lo up
ip link add node0 type bridge
ip addr add $node_ip/24 dev node0
ip link set node0 up
ip route add default dev node0
sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1

# --- programs --------------------------------------------------------------------------------------------------------

export PATH=$rig/bin:$PATH
# The older iptables, where the kernel still has it, takes less processor time, and kube-router calls it many times
# whenever a pod comes or goes.
if iptables-legacy --list > /dev/null 2>&1; then
  for program in iptables iptables-save iptables-restore; do
    ln -sf "$(command -v "${program/iptables/iptables-legacy}")" "$rig/bin/$program"
  done
fi
pki=$rig/pki
mkdir -p $rig/log $rig/pid $rig/hold

# keep NAME COMMAND...: runs a program and starts it again when it ends, as the real thing's supervisor does. While the
# file hold/NAME exists it stays down: that is how the tests stop the API server.
keep() {
  local name=$1
  shift
  while :; do
    until [ ! -e "$rig/hold/$name" ]; do sleep 0.05; done
    "$@" >> "$rig/log/$name.log" 2>&1 &
    echo $! > "$rig/pid/$name"
    wait $! || true
    sleep 0.2
  done
}

kubeconfigs() {
  echo "--kubeconfig=$pki/$1.kubeconfig" "--authentication-kubeconfig=$pki/$1.kubeconfig" \
    "--authorization-kubeconfig=$pki/$1.kubeconfig"
}

until_ready() {
  until kubectl --kubeconfig $pki/admin.kubeconfig get "$@" > /dev/null 2>&1; do sleep 0.3; done # starting kubectl takes processor time
}

# Each program is small, but makes so much garbage that collecting it took a third of its processor time. Memory is cheaper.
export GOGC=500 GOMEMLIMIT=1GiB

keep relay relay 127.0.0.1:6443 &
exec 3<&- # only the relay has a use for the host's socket

keep containerd containerd --config $rig/node/containerd.toml &
keep etcd etcd $rig/node/etcd.yaml &
keep kube-apiserver kube-apiserver \
  --etcd-servers=http://127.0.0.1:2379 --advertise-address=$node_ip --service-cluster-ip-range=$services \
  --tls-cert-file=$pki/apiserver.crt --tls-private-key-file=$pki/apiserver.key --client-ca-file=$pki/ca.crt \
  --kubelet-client-certificate=$pki/kubelet-client.crt --kubelet-client-key=$pki/kubelet-client.key \
  --kubelet-certificate-authority=$pki/ca.crt --kubelet-preferred-address-types=InternalIP \
  --token-auth-file=$pki/tokens --service-account-issuer=https://kubernetes.default.svc \
  --service-account-key-file=$pki/service-accounts.pub --service-account-signing-key-file=$pki/service-accounts.key \
  --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged &

until_ready --raw /readyz
# Without the higher limits a new namespace waits seconds for its service account. The only node is never lost: when it isn't
# heard of for a while, the machine is busy, or a test has stopped the API server.
# shellcheck disable=SC2046  # one word each
keep kube-controller-manager kube-controller-manager $(kubeconfigs controller-manager) \
  --bind-address=127.0.0.1 --leader-elect=false --root-ca-file=$pki/ca.crt \
  --service-account-private-key-file=$pki/service-accounts.key --use-service-account-credentials \
  --cluster-signing-cert-file=$pki/ca.crt --cluster-signing-key-file=$pki/ca.key \
  --kube-api-qps=300 --kube-api-burst=600 --node-monitor-grace-period=10m &
# shellcheck disable=SC2046
keep kube-scheduler kube-scheduler $(kubeconfigs scheduler) --bind-address=127.0.0.1 --leader-elect=false &
keep kubelet kubelet --config=$rig/node/kubelet.yaml --kubeconfig=$pki/node.kubeconfig --root-dir=$rig/kubelet \
  --hostname-override=node1 --node-ip=$node_ip &
keep kube-proxy kube-proxy --config=$rig/node/kube-proxy.yaml &

if $network_policies; then
  until_ready node node1 # kube-router gives up when the node isn't there yet
  keep kube-router kube-router --run-router=false --run-service-proxy=false --run-firewall=true \
    --kubeconfig=$pki/admin.kubeconfig --hostname-override=node1 --service-cluster-ip-range=$services \
    --enable-ipv6=false --iptables-sync-period=1m --health-port=0 --metrics-port=0 &
fi

# PID 1 reaps what is orphaned in its namespace.
while :; do wait -n || sleep 1; done
