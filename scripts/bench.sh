#!/bin/sh
# Runs all benches, or those that are named, as in store,feed, and ends with the table of all
# figures (integration/bench/table). One that fails does not keep the others from running;
# then the exit status is 1.
set -u
benches="store feed svp kernel wire inspect triton vmstate security simulate"
[ -z "${1:-}" ] || benches=$(echo "$1" | tr ',' ' ')
table="go run ./integration/bench/table"
status=0
for bench in $benches; do
	echo "== bench-$bench"
	case $bench in
	svp | kernel | vmstate | simulate) # these only print their line
		output=$(mktemp) || exit 1
		make "bench-$bench" >"$output" 2>&1 || status=1
		$table -take "$bench" <"$output" || status=1
		rm -f "$output"
		;;
	*) make "bench-$bench" || status=1 ;;
	esac
done
$table -svg docs/bench.svg || status=1
exit $status
