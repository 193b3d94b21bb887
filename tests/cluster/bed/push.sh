#!/bin/bash
# push.sh IMAGE [SOCKET...]: an image from buildah's storage into containerds (default: those of the running nodes).
# Each gets only the layers that it lacks.
set -euo pipefail
. "$(dirname "$0")/env.sh"
image=$1; shift
sockets=("$@")
[ ${#sockets[@]} -gt 0 ] || for folder in "$STATE"/node*/; do [ ! -d "$folder" ] || sockets+=("$RUN/$(basename "$folder").sock"); done
id=$(buildah images --format '{{.ID}}' "$image")
cache=$BED/push/$id # uncompressed layers: `oci:` would gzip them all, minutes with torch
exec 9>"$BED/push.lock"; flock 9
if [ ! -f "$cache/manifest.json" ]; then
  rm -rf "$BED/push"; mkdir -p "$BED/push"
  buildah push -q -D "$image" "dir:$cache" 9>&-
fi
for socket in "${sockets[@]}"; do
  ctr -a "$socket" -n k8s.io content ls -q | python3 "$HERE/image/missing.py" "$cache" "$image" | ctr -a "$socket" -n k8s.io images import - >/dev/null
done
rm -rf "$BED/push"
