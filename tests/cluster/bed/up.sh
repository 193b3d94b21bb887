#!/bin/bash
# Starts an empty bed: the control plane and, in cluster mode, $NODES nodes, with DNS where they are two or more: its two pods
# are on the first two nodes.
set -euo pipefail
. "$(dirname "$0")/env.sh"
mkdir -p "$STATE" "$RUN"
[ ! -f "$STATE/pid/etcd" ] || { echo "there is a bed in $STATE already: $HERE/down.sh removes it" >&2; exit 1; }
lap() { printf '%4ds %s\n' $SECONDS "$*"; }

if [ "$MODE" = cluster ]; then
  ip link add $BRIDGE type bridge
  ip addr add $NET.1/24 dev $BRIDGE
  ip link set $BRIDGE up
  echo 1 >/proc/sys/net/ipv4/ip_forward
fi
"$HERE/control.sh" up
lap "API server ready"
[ "$MODE" = cluster ] || exit 0

for i in $(seq "$NODES"); do "$HERE/node.sh" add "node$i"; done
ip route replace 10.96.0.0/16 via $NET.11 # ClusterIPs answer on this machine too, by node1; the route goes with the bridge
[ "$NODES" = 1 ] || kubectl apply -f "$HERE/coredns.yaml" >/dev/null
for i in $(seq "$NODES"); do wait_for 90 kubectl wait --for=condition=Ready "node/node$i" --timeout=5s; done
lap "$NODES nodes ready"
[ "$NODES" != 1 ] || exit 0
wait_for 90 kubectl -n kube-system rollout status deployment/coredns --timeout=5s
lap "DNS ready"
