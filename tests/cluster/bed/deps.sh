#!/bin/bash
# Installs the Debian 12 packages that the bed needs. Skips what is there.
set -euo pipefail
packages=(containerd runc containernetworking-plugins iptables ipset conntrack iproute2 procps curl openssl util-linux
  buildah debootstrap gcc libc6-dev binutils python3 python3-venv python3-pip)
if dpkg-query -W -f '${Status}\n' "${packages[@]}" 2>/dev/null | grep -c '^install ok installed$' | grep -qx "${#packages[@]}"; then exit 0; fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
