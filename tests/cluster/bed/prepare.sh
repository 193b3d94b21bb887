#!/bin/bash
# prepare.sh [--programs]: builds what the tests need of the bed: packages, Kubernetes, images; or no images, which
# the first test that wants them builds as well, while others run. Where this machine cannot host it, says why and leaves
# it to the tests to skip, unless OCTAVO_REQUIRE_BED=1.
set -euo pipefail
here=$(dirname "$0")
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "no test bed: it needs Debian and root; tests of the operator and the cluster will be skipped" >&2
  [ "${OCTAVO_REQUIRE_BED:-}" != 1 ]
  exit
fi
"$here/deps.sh"
. "$here/env.sh"
[ -f "$BIN/.complete" ] || echo "building Kubernetes from source, once: 10 to 20 minutes on two cores"
"$here/build.sh"
"$here/netpol.sh" >/dev/null
[ "${1:-}" != --programs ] || exit 0
echo "building the images"
"$here/images.sh"
