#!/bin/sh
# Builds the program and what is released of it twice, in folders of different names and
# lengths, the second time from an empty cache and in another time zone, and compares the
# bytes. Prints the SHA-256 of the program and of SHA256SUMS, which are the same on each
# machine with the same version of Go. Exit code 1: the bytes differ.
set -eu
version=${1:?want the version that the program shall show}
here=$(pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
for name in a a-folder-with-a-longer-name/below; do
	mkdir -p "$work/$name"
	git -C "$here" ls-files -z --cached --others --exclude-standard | (cd "$here" && xargs -0 sh -c 'for f; do [ ! -f "$f" ] || printf "%s\0" "$f"; done' sh | tar -c --null -T -) | tar -x -C "$work/$name"
done
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct)}
REVISION=$(git -C "$here" rev-parse HEAD)
export SOURCE_DATE_EPOCH REVISION
both() { # FOLDER: the program, and of it and of the other architecture what is released
	env -u GOFLAGS make -s -C "$1" build release VERSION="$version"
}
both "$work/a"
GOCACHE="$work/cache" TZ=Asia/Kathmandu both "$work/a-folder-with-a-longer-name/below"
one="$work/a"
two="$work/a-folder-with-a-longer-name/below"
if ! cmp "$one/bin/rutter" "$two/bin/rutter"; then
	echo "reproducible: two builds of the same source differ: go version -m and go tool buildid say in what" >&2
	exit 1
fi
if ! diff -r "$one/dist" "$two/dist"; then
	echo "reproducible: two releases of the same source differ: diffoscope says in what" >&2
	exit 1
fi
echo "the same bytes twice: version $version, $(go env GOVERSION), sha256 $(sha256sum <"$one/bin/rutter" | cut -d' ' -f1), of SHA256SUMS $(sha256sum <"$one/dist/SHA256SUMS" | cut -d' ' -f1)"
