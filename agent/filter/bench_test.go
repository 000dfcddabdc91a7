package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
)

const (
	benchPorts   = 10_000
	benchRounds  = 9
	benchChanges = 2_000
	// benchOut names the file to which the benchmarks of `make bench-wire` append key=value.
	benchOut = "RUTTER_BENCH_OUT"
)

func tell(b *testing.B, key string, value float64) {
	b.Helper()
	b.ReportMetric(value, key)
	path := os.Getenv(benchOut)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		b.Fatal(err)
	}
	_, err = fmt.Fprintf(f, "%s=%.3f\n", key, value)
	if err := errors.Join(err, f.Close()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRules programs the rules of 10,000 ports, by Apply and in turn by a bare loop that
// encodes and sends the same messages over one socket, and compares nothing. Then it
// measures how long a change of one of these ports takes until the kernel has it.
func BenchmarkRules(b *testing.B) {
	changes, elems := make([]Change, benchPorts), make([][]elem, benchPorts)
	for i := range changes {
		p := portNumber(i + 1)
		p.Addresses = append(p.Addresses, ip6A)
		changes[i].SetPort, elems[i] = &p, p.elems()
	}
	var ours, bare []time.Duration
	var last *node
	for range benchRounds {
		last = newNode(b)
		began := time.Now()
		last.apply(changes...)
		ours = append(ours, time.Since(began))
		n := newNode(b)
		began = time.Now()
		n.bare(elems)
		bare = append(bare, time.Since(began))
		n.k.known = false
		if got := len(n.read().Ports); got != benchPorts {
			b.Fatalf("the bare loop made %d ports", got)
		}
	}
	slices.Sort(ours)
	slices.Sort(bare)
	var took []time.Duration
	for i := range benchChanges {
		p := portNumber(1 + i*7%benchPorts)
		p.Addresses = append(p.Addresses, netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}))
		began := time.Now()
		last.apply(Change{SetPort: &p})
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	b.Logf("%d ports: ours %v, bare loop %v; a change of one: median %v, 99 %% %v", benchPorts, ours[benchRounds/2], bare[benchRounds/2], took[len(took)/2], p99)
	tell(b, "rules_vs_raw", bare[benchRounds/2].Seconds()/ours[benchRounds/2].Seconds())
	tell(b, "rule_change_p99_ms", float64(p99.Microseconds())/1000)
}

// bare encodes and sends the elements of ports, in transactions as large as Apply's.
func (n *node) bare(ports [][]elem) {
	begin := newMessage(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES).end()
	end := newMessage(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES).end()
	limit := min(maxTransaction, n.k.c.limit/2)
	var batch []byte
	for i, port := range ports {
		if len(batch) == 0 {
			batch = append(batch, begin...)
		}
		for j, e := range port {
			m := newElem(e)
			if last := j == len(port)-1; last && (i == len(ports)-1 || len(batch) > limit) {
				binary.NativeEndian.PutUint16(m[6:], binary.NativeEndian.Uint16(m[6:])|unix.NLM_F_ACK)
				n.sendBare(append(append(batch, m...), end...))
				batch = batch[:0]
				continue
			}
			batch = append(batch, m...)
		}
	}
}

// sendBare sends a transaction, and waits for its acknowledgement.
func (n *node) sendBare(batch []byte) {
	if err := n.k.c.send(batch); err != nil {
		n.t.Fatal(err)
	}
	if err := n.k.c.receive(func(h nlmsg.Header, body []byte) (bool, error) {
		if h.Type != unix.NLMSG_ERROR {
			return true, nil
		}
		return false, kernelError(h, body)
	}); err != nil {
		n.t.Fatal(err)
	}
}
