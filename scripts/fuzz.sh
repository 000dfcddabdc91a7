#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each (default 10s),
# and stops at the first that finds something.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
each=${1:-10s}

mapfile -t targets < <(grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(' . |
	sed -E 's|^(.*)/[^/]*:[0-9]+:func (Fuzz[A-Za-z0-9_]*)\($|\1 \2|' | sort -u)
if [ ${#targets[@]} -eq 0 ]; then
	echo "fuzz: no fuzz target found" >&2
	exit 1
fi

n=0
for target in "${targets[@]}"; do
	read -r dir name <<<"$target"
	n=$((n + 1))
	echo "fuzz: $n/${#targets[@]} $dir $name, $each"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$each" "$dir"
done
