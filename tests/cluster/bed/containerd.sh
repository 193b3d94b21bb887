#!/bin/bash
# containerd.sh ROOT RUN CNI: prints a containerd configuration; its socket is RUN.sock.
# RUNTIME_SPEC, where it is set: a file with the OCI spec that every container begins with.
spec=${RUNTIME_SPEC:+base_runtime_spec = \"$RUNTIME_SPEC\"}
cat <<T
version = 2
root = "$1"
state = "$2"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "$2.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$3"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    $spec
T
