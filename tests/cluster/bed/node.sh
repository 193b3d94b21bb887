#!/bin/bash
# One node of the cluster: a network namespace with a containerd, kubelet and kube-proxy of its own.
#   node.sh add NODE                   makes and starts it; it has the images of the store
#   node.sh kubelet NODE stop|start    its kubelet dies, containers go on; it comes back
#   node.sh net NODE down|up           its cable is pulled: kubelet and pods cannot be reached; it is back in
#   node.sh crash NODE                 kubelet, containerd and every container are killed
#   node.sh remove NODE                stops it and leaves nothing of it
set -euo pipefail
. "$(dirname "$0")/env.sh"
[ $# -ge 2 ] && [[ $2 =~ ^node[1-9]$ ]] || { sed -n '2,7s/^# *//p' "$0" >&2; exit 2; }
command=$1 node=$2 action=${3:-} i=${2#node}
folder=$STATE/$node address=$NET.$((10 + i)) subnet=10.244.$i.0/24 cgroup=/octavo-bed/$node link=octavo-$node
cd "$STATE"

credentials() { # NodeRestriction is on: each kubelet logs in as its own node
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "pki/$node.key" -out "pki/$node.csr" -subj "/O=system:nodes/CN=system:node:$node" 2>/dev/null
  openssl x509 -req -in "pki/$node.csr" -CA pki/ca.crt -CAkey pki/ca.key -CAcreateserial -out "pki/$node.crt" -days 30 2>/dev/null
  sed "s|client-certificate-data: [^,}]*|client-certificate-data: $(base64 -w0 "pki/$node.crt")|; s|client-key-data: [^,}]*|client-key-data: $(base64 -w0 "pki/$node.key")|" \
    admin.conf >"$node.conf"
}
network() { # one cable to the host's bridge, one pod subnet, routes to the other nodes' pods
  ip netns add $link
  ip link add $link type veth peer name eth0 netns $link
  ip link set $link master $BRIDGE up
  on_node $node ip link set lo up
  on_node $node ip addr add "$address/24" dev eth0
  on_node $node ip link set eth0 up
  on_node $node ip route add default via $NET.1
  ip route add $subnet via $address
  local j; for j in $(seq 9); do [ "$j" = "$i" ] || on_node $node ip route add 10.244.$j.0/24 via $NET.$((10 + j)); done
  on_node $node sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables'
  cat >"$folder/cni/10-bridge.conflist" <<Y
{"cniVersion": "0.4.0", "name": "$link", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$folder/ipam", "ranges": [[{"subnet": "$subnet"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
Y
}
containerd_start() {
  # From the prepared store, as hard links; its databases are written to and must not be shared.
  cp -al "$BED/store/root/." "$folder/containerd/"
  local file; (cd "$BED/store/root" && find . -name '*.db') | while read -r file; do
    cp --remove-destination "$BED/store/root/$file" "$folder/containerd/$file"
  done
  "$HERE/containerd.sh" "$folder/containerd" "$RUN/$node" "$folder/cni" >"$folder/containerd.toml"
  start $node-containerd nsenter --net=/run/netns/$link -- containerd -c "$folder/containerd.toml"
  wait_for 30 node_ctr $node version
}
cgroups() { # a cgroup root of its own, or two kubelets remove each other's pods
  local tree file controller
  for tree in $(cgroup_trees); do
    mkdir -p "$tree$cgroup"
    if [ -f "$tree/cgroup.controllers" ] && [ "$tree" = /sys/fs/cgroup ]; then
      for controller in $(cat "$tree/cgroup.controllers"); do # for the kubelet, which wants them in the root that it is given
        echo "+$controller" >"$tree/cgroup.subtree_control" && echo "+$controller" >"$tree/octavo-bed/cgroup.subtree_control" ||
          echo "the cgroup controller $controller cannot be given on" >&2
      done
    fi
    [ "$(basename "$tree")" = cpuset ] || continue
    for file in cpuset.cpus cpuset.mems; do
      cat "$tree/$file" >"$tree/octavo-bed/$file"
      cat "$tree/$file" >"$tree$cgroup/$file"
    done
  done
}
kubelet_config() {
  # A lease every 4 s, so that a lost node is NotReady after 20 s. Its status is looked at as often but sent only when it
  # has changed: it names every image, and each watcher of nodes reads it. failCgroupV1: the bed also runs where there is
  # no cgroup v2.
  cat >"$folder/kubelet.yaml" <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, x509: {clientCAFile: $STATE/pki/ca.crt}, webhook: {enabled: true}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: $cgroup
oomScoreAdj: 0
maxOpenFiles: 20000
failSwapOn: false
failCgroupV1: false
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: ""
containerRuntimeEndpoint: unix://$RUN/$node.sock
nodeLeaseDurationSeconds: 16
nodeStatusUpdateFrequency: 4s
nodeStatusReportFrequency: 5m
imageGCHighThresholdPercent: 100
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: 100Mi}
enforceNodeAllocatable: [pods]
podLogsDir: $folder/pod-logs
Y
}
kubelet_start() { # no test reads the figures that its housekeeping collects
  start $node-kubelet nsenter --net=/run/netns/$link -- kubelet --config "$folder/kubelet.yaml" --kubeconfig $node.conf \
    --hostname-override=$node --node-ip=$address --root-dir="$folder/kubelet" --housekeeping-interval=60s
}
proxy_start() {
  start $node-proxy nsenter --net=/run/netns/$link -- kube-proxy --kubeconfig proxy.conf --hostname-override=$node --proxy-mode=iptables \
    --cluster-cidr=10.244.0.0/16 --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
}
add() {
  mkdir -p "$folder"/{containerd,kubelet,cni}
  credentials
  network
  containerd_start
  cgroups
  kubelet_config
  kubelet_start
  proxy_start
}
pids() { # of every container of the node, and of their shims
  pgrep -f "containerd-shim-runc-v2 .*-address $RUN/$node.sock" || :
  local tree; for tree in $(cgroup_trees); do find "$tree$cgroup" -name cgroup.procs -exec cat {} + 2>/dev/null; done | sort -un || :
}
crash() {
  local process pid
  for process in kubelet proxy containerd; do stop $node-$process KILL; done
  for pid in $(pids); do kill -KILL "$pid" 2>/dev/null || :; done
}
remove() {
  crash; sleep .3; crash
  local mount namespace
  awk -v a="$folder/" -v b="$RUN/$node/" 'index($2, a) == 1 || index($2, b) == 1 {print $2}' /proc/mounts | sort -r |
    while read -r mount; do umount -l "$mount" 2>/dev/null || :; done
  for namespace in $(cd /run/netns 2>/dev/null && ls -d cni-* 2>/dev/null); do # of this node's pods
    ! nsenter --net="/run/netns/$namespace" ip -4 addr 2>/dev/null | grep -q "inet 10.244.$i\." || ip netns del "$namespace"
  done
  ip link del $link 2>/dev/null || :
  ip netns del $link 2>/dev/null || :
  ip route del $subnet 2>/dev/null || :
  local tree; for tree in $(cgroup_trees); do find "$tree$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || :; done
  rm -rf "$folder" "$RUN/$node" "$RUN/$node.sock"*
}

case $command-$action in
  add-) add ;;
  kubelet-stop) stop $node-kubelet KILL ;;
  kubelet-start) kubelet_start ;;
  net-up | net-down) ip link set $link "$action" ;;
  crash-) crash ;;
  remove-) remove ;;
  *) sed -n '2,7s/^# *//p' "$0" >&2; exit 2 ;;
esac
