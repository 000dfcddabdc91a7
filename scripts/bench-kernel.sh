#!/bin/sh
# Runs the kernel's benchmarks, and prints what they measured as one line of key=value,
# also when one of them fails; then its exit status is 1, after the names of the keys that
# are missing. With an argument, entries, stacks, noop, own, misses or paced, it runs only
# those.
set -u
part=${1:-all}
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
export RUTTER_BENCH_OUT="$out"
status=0
keys=
run() { # run NAMES PATTERN PACKAGE KEY...: the benchmarks of a part
	names=$1 pattern=$2 package=$3
	shift 3
	case " $names all " in
	*" $part "*) ;;
	*) return ;;
	esac
	keys="$keys $*"
	go test -run '^$' -bench "$pattern" -benchtime 1x -timeout 20m "$package" || status=1
}
case $part in
all | entries | stacks | noop | own | misses | paced) ;;
*)
	echo "no part $part: there are entries, stacks, noop, own, misses and paced" >&2
	exit 2
	;;
esac
run entries '^BenchmarkKernelEntries$' ./agent/link entries_vs_raw entries_vs_batch
run stacks '^BenchmarkKernelStacks$' ./agent/link stacks_vs_raw
run noop '^BenchmarkKernelNoop$' ./agent/link noop_pass_ms noop_pass_cpu_ms
run own '^BenchmarkKernelOwnNIC$' ./agent/link own_nic_p99_ms_1000vms
run own '^BenchmarkOwnNICWait$' ./integration own_nic_wait_fabric_p99_ms
run misses '^BenchmarkKernelMisses$' ./agent/link misses_per_s miss_p99_ms
run stacks '^BenchmarkTaggedStacks$' ./integration/guest
run paced '^BenchmarkPacedWay$' ./integration event_to_kernel_p99_ms
if [ "$part" = all ] || [ "$part" = stacks ]; then
	echo "stacks_vs_raw is of VXLAN + macvlan on this kernel; tagged_stacks_vs_raw above is of full stacks, VXLAN + VLAN + macvlan, in the guest kernel"
fi
line=
for key in $keys; do
	if value=$(grep -m 1 "^$key=" "$out"); then
		line="$line $value"
	else
		echo "$key was not measured" >&2
		status=1
	fi
done
echo "${line# }"
exit $status
