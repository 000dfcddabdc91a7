package filter

import (
	"context"
	"slices"
	"testing"
	"time"
)

// benchPorts is how many ports the benchmark's node has.
const benchPorts = 10_000

// BenchmarkPorts programs 10,000 ports, each with an IPv4 and an IPv6 address, through Apply
// and beside it by a bare loop that sends the same messages, prepared beforehand, in the same
// transactions. It reports rules_vs_raw (1 is as fast as the bare loop), and the 99th
// percentile of one port's change at 10,000 ports in milliseconds.
func BenchmarkPorts(b *testing.B) {
	var ours, raw time.Duration
	var changes []time.Duration
	for b.Loop() {
		n := newNode(b)
		var list []Change
		for i := 1; i <= benchPorts; i++ {
			p := portNumber(i)
			p.Addresses = append(p.Addresses, ip6A)
			list = append(list, Change{SetPort: &p})
		}
		begin := time.Now()
		n.apply(list...)
		ours += time.Since(begin)
		for i := range 500 {
			p := portNumber(1 + i*7)
			p.AnyIP, p.MAC = i%2 == 0, macA
			begin := time.Now()
			n.apply(Change{SetPort: &p})
			changes = append(changes, time.Since(begin))
		}
		if err := n.k.Remove(context.Background()); err != nil {
			b.Fatal(err)
		}
		n.apply()
		raw += rawLoop(b, n, list)
	}
	slices.Sort(changes)
	b.ReportMetric(raw.Seconds()/ours.Seconds(), "rules_vs_raw")
	b.ReportMetric(ours.Seconds()*1e3/float64(b.N), "program_ms")
	b.ReportMetric(changes[len(changes)*99/100].Seconds()*1e3, "rule_change_p99_ms")
}

// rawLoop sends the messages of changes, which are prepared before the time is taken.
func rawLoop(b *testing.B, n *node, list []Change) time.Duration {
	base := newContents()
	d := newDraft(&base)
	var batches [][]message
	var batch []message
	size := 0
	for _, c := range list {
		before := len(batch)
		batch = d.apply(c, batch)
		for _, m := range batch[before:] {
			size += len(m)
		}
		if size > maxTransaction {
			batches, batch, size = append(batches, batch), nil, 0
		}
	}
	batches = append(batches, batch)
	gen, err := n.k.c.generation()
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	for i, messages := range batches {
		if _, err := n.k.c.transact(gen+uint32(i), messages); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}
