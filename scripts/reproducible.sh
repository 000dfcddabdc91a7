#!/bin/sh
# Builds the program twice as make build does, in folders of different names and lengths,
# the second time from an empty cache and in another time zone, and compares the bytes.
# Prints the SHA-256 of the program, which is the same on each machine with the same
# version of Go. Exit code 1: the bytes differ.
set -eu
version=${1:?want the version that the program shall show}
here=$(pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
for name in a a-folder-with-a-longer-name/below; do
	mkdir -p "$work/$name"
	git -C "$here" ls-files -z --cached --others --exclude-standard | (cd "$here" && xargs -0 sh -c 'for f; do [ ! -f "$f" ] || printf "%s\0" "$f"; done' sh | tar -c --null -T -) | tar -x -C "$work/$name"
done
env -u GOFLAGS make -s -C "$work/a" build VERSION="$version"
env -u GOFLAGS GOCACHE="$work/cache" TZ=Asia/Kathmandu make -s -C "$work/a-folder-with-a-longer-name/below" build VERSION="$version"
one="$work/a/bin/rutter"
two="$work/a-folder-with-a-longer-name/below/bin/rutter"
if ! cmp "$one" "$two"; then
	echo "reproducible: two builds of the same source differ: go version -m and go tool buildid say in what" >&2
	exit 1
fi
echo "the same bytes twice: version $version, $(go env GOVERSION), sha256 $(sha256sum <"$one" | cut -d' ' -f1)"
