#!/bin/bash
# push.sh IMAGE [SOCKET...]: an image from buildah's storage into containerds (default: the running nodes').
# Each gets only the layers that it lacks, and buildah writes out only layers that one of them lacks: it takes an empty
# file under a layer's name for the layer. (To read, sum and write all of them takes 20 seconds of a CPU.)
set -euo pipefail
. "$(dirname "$0")/env.sh"
image=$1; shift
sockets=("$@")
[ ${#sockets[@]} -gt 0 ] || for folder in "$STATE"/node*/; do [ ! -d "$folder" ] || sockets+=("$RUN/$(basename "$folder").sock"); done
exec 9>"$BED/push.lock"; flock 9
work=$BED/push; rm -rf "$work"; mkdir -p "$work/layout/blobs/sha256"; trap 'rm -rf "$work"' EXIT

buildah inspect --type image --format '{{.Manifest}}' "$image" >"$work/manifest" 9>&-
grep -o 'sha256:[0-9a-f]*' "$work/manifest" | sort -u >"$work/common"
for i in "${!sockets[@]}"; do
  ctr -a "${sockets[i]}" -n k8s.io content ls -q | sort >"$work/$i"
  comm -12 "$work/common" "$work/$i" >"$work/less"; mv "$work/less" "$work/common"
done
(cd "$work/layout/blobs/sha256" && sed 's/^sha256://' "$work/common" | xargs -r touch)
echo '{"imageLayoutVersion": "1.0.0"}' >"$work/layout/oci-layout"
buildah push -q --compression-level 1 "$image" "oci:$work/layout:image" 9>&-
for i in "${!sockets[@]}"; do
  python3 "$HERE/image/missing.py" "$work" "$image" <"$work/$i" | ctr -a "${sockets[i]}" -n k8s.io images import - >/dev/null
done
