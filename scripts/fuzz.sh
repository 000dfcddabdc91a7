#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each (default 10s), or
# those whose name is the second argument, and stops at the first that finds something.
#
# The time is used up in rounds of so many inputs: with a time for -fuzztime, Go
# below 1.27 takes the end of it for a failure now and then ("context deadline
# exceeded", with no input saved: go.dev/issue/75804), on a busy machine above all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
each=${1:-10s}
only=${2:-Fuzz[A-Za-z0-9_]*}

mapfile -t targets < <(grep -rnoE --include='*_test.go' "^func $only\\(" . |
	sed -E 's|^(.*)/[^/]*:[0-9]+:func (Fuzz[A-Za-z0-9_]*)\($|\1 \2|' | sort -u)
if [ ${#targets[@]} -eq 0 ]; then
	echo "fuzz: no fuzz target found" >&2
	exit 1
fi

case $each in
*h) seconds=$((${each%h} * 3600)) ;;
*m) seconds=$((${each%m} * 60)) ;;
*) seconds=${each%s} ;;
esac

# fuzz runs one target in rounds, the next as long as what is left of the time.
fuzz() {
	go test -run '^$' -fuzz "^$2\$" -fuzztime 1x "$1" # builds it
	local begun=$SECONDS inputs=500 before took
	while [ $((SECONDS - begun)) -lt "$seconds" ]; do
		before=$SECONDS
		go test -run '^$' -fuzz "^$2\$" -fuzztime "${inputs}x" -fuzzminimizetime 10x "$1"
		took=$((SECONDS - before + 1))
		inputs=$((inputs * (seconds - (SECONDS - begun) + 1) / took))
		if [ $inputs -lt 100 ]; then return 0; fi
	done
}

n=0
for target in "${targets[@]}"; do
	read -r dir name <<<"$target"
	n=$((n + 1))
	echo "fuzz: $n/${#targets[@]} $dir $name, $each"
	fuzz "$dir" "$name"
done
