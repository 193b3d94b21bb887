#!/bin/bash
# cluster.sh [down]: leaves a cluster running for a person, with our images from the tree as it is; or removes it.
# A second run sends what changed to the running nodes.
set -euo pipefail
. "$(dirname "$0")/env.sh"
[ "$(id -u)" = 0 ] || { echo "a cluster on this machine needs root: its nodes are network namespaces" >&2; exit 1; }
if [ "${1:-}" = down ]; then exec "$HERE/down.sh"; fi

"$HERE/deps.sh"
[ -f "$BIN/.complete" ] || echo "building Kubernetes from source, once: about 10 minutes on two cores"
"$HERE/build.sh"
echo "building the images"
"$HERE/images.sh"
if [ -f "$STATE/pid/etcd" ] && kubectl get --raw /readyz >/dev/null 2>&1; then
  echo "the cluster was running: its nodes have the new images"
else
  "$HERE/down.sh"
  "$HERE/up.sh"
fi
cat <<T

export KUBECONFIG=$KUBECONFIG PATH=$BIN:\$PATH
helm install octavo charts/octavo --values tests/cluster/bed/values.yaml
kubectl apply -f examples/minimal.yaml
kubectl wait --for=condition=Ready infsvc/chat --timeout=300s
kubectl port-forward svc/chat 8000:80 &
curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' -d '{
  "model": "chat", "messages": [{"role": "user", "content": "What is the capital of France?"}]}'

make cluster-down removes it.
T
