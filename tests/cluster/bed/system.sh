#!/bin/bash
# The two images that the cluster itself needs: localhost/pause:1 and localhost/coredns:1, into buildah's storage.
set -euo pipefail
. "$(dirname "$0")/env.sh"
stamp=$BED/parts/system-$( { cat "$HERE/image/pause.c" "$HERE/image/mkimage.py"; echo "$BIN"; } | hash_of)
mkdir -p "$BED/parts"
[ ! -f "$stamp" ] || ! buildah images -q localhost/coredns:1 >/dev/null 2>&1 || exit 0
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
image() { # image NAME PROGRAM FOLDER
  tar -C "$3" --owner=0 --group=0 -cf "$work/layer.tar" "$2"
  python3 "$HERE/image/mkimage.py" "$work/image.tar" "$1" "{\"Entrypoint\": [\"/$2\"]}" "$work/layer.tar"
  buildah pull -q "docker-archive:$work/image.tar" >/dev/null
}
gcc -Os -static -s -o "$work/pause" "$HERE/image/pause.c"
image localhost/pause:1 pause "$work"
image localhost/coredns:1 coredns "$BIN"
touch "$stamp"
