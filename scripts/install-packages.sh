#!/usr/bin/env bash
# Installs the packages of debian-packages.txt, or of the list in this folder
# that is named, that are missing, if root on Debian; else says in one sentence
# what is missing, and what needs it skips. Root without a working apt is an
# error: a CI machine must not skip.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

mapfile -t wanted < <(sed 's/#.*//' "${1:-debian-packages.txt}" | awk 'NF {print $1}')
if ! command -v dpkg >/dev/null; then
	echo "packages: this is not Debian, so what needs ${wanted[*]} skips unless their programs are there."
	exit 0
fi

missing=()
for name in "${wanted[@]}"; do
	dpkg -s "$name" 2>/dev/null | grep -q '^Status: .* installed$' || missing+=("$name")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo "packages: ${missing[*]} missing, so what needs them skips; as root: apt-get install --no-install-recommends ${missing[*]}"
	exit 0
fi

echo "packages: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${missing[@]}"; } >/dev/null; then
	echo "packages: could not install ${missing[*]}; mend apt, or run 'go test ./...', which skips what needs them." >&2
	exit 1
fi
