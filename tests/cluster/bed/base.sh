#!/bin/bash
# The two images that ours are built on, made from Debian's and Python's package registries and kept by content hash:
#   localhost/octavo-base:HASH     Debian 12 with its Python 3.11 and a virtual environment in /opt/venv
#   localhost/octavo-torch:HASH    the same, with torch in the virtual environment, made small for machines without a GPU
# Prints the two names.
set -euo pipefail
. "$(dirname "$0")/env.sh"
PARTS=$BED/parts; mkdir -p "$PARTS"
exec 9>"$PARTS.lock"; flock 9
packages=python3,python3-venv,ca-certificates,curl,iproute2,procps
torch_pin() { awk '/^torch==/ {on=1} on {print} on && !/\\$/ {exit}' "$ROOT/constraints.txt"; }
debian_key=$( { echo $packages; cat "$HERE/image/mkimage.py"; } | hash_of)
torch_key=$( { torch_pin; cat "$HERE/image/torch_cpu.py"; } | hash_of)
debian=$PARTS/debian-$debian_key.tar torch=$PARTS/torch-$torch_key.tar
base=localhost/octavo-base:$debian_key with_torch=localhost/octavo-torch:$debian_key-$torch_key

make_debian() {
  local root=$PARTS/debian.work; rm -rf "$root"
  debootstrap --variant=minbase --include=$packages bookworm "$root" >"$PARTS/debootstrap.log" 9>&-
  chroot "$root" python3 -m venv /opt/venv
  tar -C "$root" --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' --exclude='./usr/share/doc/*' \
    --exclude='./usr/share/locale/*' --exclude='./usr/share/man/*' --exclude='./dev/*' -cf "$debian.part" .
  rm -rf "$root"; mv "$debian.part" "$debian"
}
make_torch() {
  local root=$PARTS/torch.work; local site=$root/opt/venv/lib/python3.11/site-packages
  rm -rf "$root"; mkdir -p "$site"
  torch_pin >"$PARTS/torch.txt"
  python3 -m pip install -q --root-user-action=ignore --target "$site" --no-deps --no-compile --only-binary :all: --python-version 3.11 --require-hashes -r "$PARTS/torch.txt"
  python3 "$HERE/image/torch_cpu.py" "$site"
  python3.11 -m compileall -qq -j 2 -s "$root" -p / "$site" || : # torch has files for other versions of Python
  tar -C "$root" --owner=0 --group=0 -cf "$torch.part" opt
  rm -rf "$root"; mv "$torch.part" "$torch"
}
import() { # import IMAGE LAYER...
  ! buildah images -q "$1" >/dev/null 2>&1 || return 0
  python3 "$HERE/image/mkimage.py" "$PARTS/image.tar" "$1" '{"Env": ["PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}' "${@:2}"
  buildah pull -q "docker-archive:$PARTS/image.tar" >/dev/null 9>&-
  rm "$PARTS/image.tar"
}
[ -f "$debian" ] || make_debian &
[ -f "$torch" ] || make_torch
wait $!
import "$base" "$debian"
import "$with_torch" "$debian" "$torch"
echo "$base $with_torch"
