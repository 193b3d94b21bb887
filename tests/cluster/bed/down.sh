#!/bin/bash
# Stops what up.sh started, by recorded process ids, and takes down its mounts, namespaces, cgroups and bridge.
# Keeps programs and images. Does nothing where nothing runs.
set -uo pipefail
. "$(dirname "$0")/env.sh"
[ -d "$STATE" ] || exit 0
if [ "$MODE" = cluster ]; then # the nodes first: their process ids go with the control plane's
  for folder in "$STATE"/node*/; do [ ! -d "$folder" ] || "$HERE/node.sh" remove "$(basename "$folder")"; done
fi
"$HERE/control.sh" down
if [ "$MODE" = cluster ]; then
  ip link del $BRIDGE 2>/dev/null
  for tree in $(cgroup_trees); do find "$tree/octavo-bed" -depth -type d -exec rmdir {} + 2>/dev/null; done
fi
rm -rf "$STATE"
exit 0
