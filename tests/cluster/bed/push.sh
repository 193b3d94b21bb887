#!/bin/bash
# push.sh IMAGE [SOCKET...]: an image from buildah's storage into containerds (default: those of the running nodes).
# Each gets only the layers that it lacks.
set -euo pipefail
. "$(dirname "$0")/env.sh"
image=$1; shift
sockets=("$@")
[ ${#sockets[@]} -gt 0 ] || for folder in "$STATE"/node*/; do [ ! -d "$folder" ] || sockets+=("$RUN/$(basename "$folder").sock"); done
exec 9>"$BED/push.lock"; flock 9
work=$BED/push; rm -rf "$work"; mkdir -p "$work"; trap 'rm -rf "$work"' EXIT
buildah push -q -D "$image" "dir:$work/image" 9>&- # uncompressed layers: `oci:` would gzip them all, minutes with torch
for socket in "${sockets[@]}"; do
  ctr -a "$socket" -n k8s.io content ls -q | python3 "$HERE/image/missing.py" "$work/image" "$image" | ctr -a "$socket" -n k8s.io images import - >/dev/null
done
