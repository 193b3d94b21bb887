#!/bin/bash
# Builds the program that enforces NetworkPolicies on a node (netpol/main.go), once, and prints its path.
set -euo pipefail
. "$(dirname "$0")/env.sh"
program=$BED/netpol-$( (cd "$HERE/netpol" && cat go.mod go.sum main.go) | hash_of)
mkdir -p "$BED"
exec 9>"$BED/netpol.lock"; flock 9
if [ ! -x "$program" ]; then
  if [ -x "$BED/go/go/bin/go" ]; then export GOROOT=$BED/go/go PATH=$BED/go/go/bin:$PATH; fi # where build.sh wanted a newer one
  cd "$HERE/netpol"
  CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath" go build -ldflags "-s -w" -o "$program.part" . >&2
  mv "$program.part" "$program"
fi
echo "$program"
