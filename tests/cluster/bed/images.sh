#!/bin/bash
# Makes what the nodes need: the base images, ours from the tree as it is (localhost/octavo-{operator,router,worker}:test),
# and the store, a containerd root with all of them that new nodes start from. Running nodes get the changed layers.
# Where nothing changed it does nothing.
set -euo pipefail
. "$(dirname "$0")/env.sh"
"$HERE/build.sh"
mkdir -p "$BED"/parts "$RUN"
exec 8>"$BED/images.lock"; flock 8

IMAGES="localhost/pause:1 localhost/coredns:1 localhost/octavo-operator:test localhost/octavo-router:test localhost/octavo-worker:test"
source_hash() { # everything that .dockerignore lets through, and what builds it
  (cd "$ROOT" && find LICENSE README.md Dockerfile .dockerignore constraints.txt pyproject.toml kernels operator proto router src worker \
    -not -path '*__pycache__*' -not -path '*.egg-info*' -not -path 'kernels/lib/*' \( -type f -o -type l \) -print0 2>/dev/null | sort -z |
    xargs -0 sh -c 'for f; do echo "$f"; [ -L "$f" ] && readlink "$f" || cat "$f"; done' sh; cat "$HERE"/{base,images}.sh "$HERE"/image/*) | hash_of
}
build_target() { # build_target TARGET BASE TORCH
  # The machine's certificates are lent to the build, for registries behind a proxy; the images do not keep them.
  # Only the CPU's kernels: the nodes have no GPU, and the others would take minutes.
  buildah bud -q --layers --isolation chroot --network host --pull-never -v /etc/ssl/certs:/etc/ssl/certs:ro \
    --build-arg "BASE=$2" --build-arg "WORKER_BASE=$3" --build-arg 'PROVIDED=torch|triton|nvidia-.*|cuda-.*' --build-arg KERNELS=cpu \
    --target "$1" -t "localhost/octavo-$1:test" -f "$ROOT/Dockerfile" "$ROOT" >/dev/null 8>&-
}
ours() {
  local base torch target; read -r base torch < <("$HERE/base.sh")
  for target in operator router worker; do build_target $target "$base" "$torch"; done
}
ids() { local image; for image in $IMAGES; do echo "$image $(buildah images --format '{{.ID}}' $image)"; done; }
changed() { comm -13 <(sort "$BED/store/ids") <(ids | sort) | cut -d' ' -f1; } # images with another id than in the store
running() { # sockets of running nodes
  local folder; for folder in "$BED"/cluster/node*/; do
    ! timeout 5 ctr -a "$RUN/$(basename "$folder").sock" version >/dev/null 2>&1 || echo "$RUN/$(basename "$folder").sock"
  done
}
store() { # brings the store and the running nodes up to the images of buildah's storage
  local socket=$RUN/store.sock pid image
  "$HERE/containerd.sh" "$BED/store/root" "$RUN/store" /nonexistent >"$BED/store/containerd.toml"
  containerd -c "$BED/store/containerd.toml" >"$BED/store/log" 2>&1 8>&- &
  pid=$!; trap "kill $pid; wait $pid || :; rm -rf '$RUN/store'" EXIT
  wait_for 20 ctr -a $socket version
  for image in $(changed); do "$HERE/push.sh" $image $socket $(running); done
  kill $pid; wait $pid || :; trap - EXIT; rm -rf "$RUN/store"
  ids >"$BED/store/ids"
}

"$HERE/system.sh"
source=$(source_hash)
if [ "$(cat "$BED/parts/source" 2>/dev/null)" != "$source" ]; then
  ours
  echo "$source" >"$BED/parts/source"
fi
mkdir -p "$BED/store/root"; touch "$BED/store/ids"
if [ -n "$(changed)" ]; then
  store & # in the background, where set -e holds although its end is asked for
  if ! wait $!; then
    echo "the store of images is broken, as after a build that was killed: it is made again" >&2
    rm -rf "$BED/store"; mkdir -p "$BED/store/root"; touch "$BED/store/ids"
    store
  fi
fi
