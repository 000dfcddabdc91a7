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

# Some machines have no udev, which gives every user the right to open it (50-udev-default.rules).
[ "$(id -u)" -ne 0 ] || [ ! -c /dev/net/tun ] || chmod 0666 /dev/net/tun

# A package with unpack: before its name is unpacked into a folder of its own, without its
# scripts, or, if it has only a dependency, that one.
unpacked=/var/cache/rutter-tests
unpack() {
	local name=$1 real temp
	temp=$(mktemp -d)
	real=$(apt-cache depends --no-recommends --no-suggests "$name" | awk '$1 == "Depends:" {print $2; exit}')
	[[ $real == linux-image-* ]] || real=$name
	(cd "$temp" && apt-get download -qq -o APT::Sandbox::User=root "$real") && rm -rf "$unpacked/$name" "$unpacked/$name.new" && mkdir -p "$unpacked" &&
		dpkg -x "$temp"/*.deb "$unpacked/$name.new" && mv "$unpacked/$name.new" "$unpacked/$name"
	local rc=$?
	rm -rf "$temp"
	return $rc
}

missing=() folders=()
for name in "${wanted[@]}"; do
	if [[ $name == unpack:* ]]; then
		# Of a package for one architecture, which its name ends with, others have none.
		[[ ${name##*-} =~ ^(amd64|arm64)$ && ${name##*-} != "$(dpkg --print-architecture)" ]] && continue
		[[ -e $unpacked/${name#unpack:} ]] || folders+=("${name#unpack:}")
		continue
	fi
	dpkg -s "$name" 2>/dev/null | grep -q '^Status: .* installed$' || missing+=("$name")
done
[ $((${#missing[@]} + ${#folders[@]})) -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo "packages: ${missing[*]} ${folders[*]} missing, so what needs them skips; as root: $0"
	exit 0
fi

echo "packages: installing ${missing[*]} ${folders[*]}"
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && { [ ${#missing[@]} -eq 0 ] || apt-get install -qq -y --no-install-recommends "${missing[@]}"; }; } >/dev/null; then
	echo "packages: could not install ${missing[*]}; mend apt, or run 'go test ./...', which skips what needs them." >&2
	exit 1
fi
for name in "${folders[@]}"; do
	unpack "$name" || {
		echo "packages: could not unpack $name; mend apt, or run 'go test ./...', which skips what needs it." >&2
		exit 1
	}
done
