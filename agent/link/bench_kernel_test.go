package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// benchOut names the file to which the benchmarks of `make bench-kernel` append
// key=value; without it they only report.
const benchOut = "RUTTER_BENCH_OUT"

func tell(b *testing.B, key, format string, value float64) {
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
	_, err = fmt.Fprintf(f, "%s="+format+"\n", key, value)
	if err := errors.Join(err, f.Close()); err != nil {
		b.Fatal(err)
	}
}

// rounds are run in turn with those of rivals, so that all have the same machine.
type rounds []time.Duration

func (r *rounds) time(f func()) {
	began := time.Now()
	f()
	*r = append(*r, time.Since(began))
}

func (r rounds) median() time.Duration {
	sorted := slices.Sorted(slices.Values(r))
	return sorted[len(sorted)/2]
}

const benchRounds = 9

// BenchmarkKernelEntries programs 10,000 neighbours and as many forwarding
// entries: by Apply, by a bare loop over one socket in each namespace, and by
// ip -batch and bridge -batch.
func BenchmarkKernelEntries(b *testing.B) {
	const peers = 10_000
	w := newWorld(b)
	w.namespace("z0")
	want := crowd(1, peers, 1)
	bare := want
	bare.Neighs, bare.FDB = nil, nil
	g := guard(w, bare, time.Hour)
	pass(b, g.m, bare)
	have, err := g.h.Dump(context.Background(), []string{"z0"})
	if err != nil {
		b.Fatal(err)
	}
	steps := plan.Plan(want, have, g.m.numbers, true).Steps
	index := map[string]int32{"": g.h.index[plan.LinkKey{Namespace: "", Name: "sdcvxl1000"}], "z0": g.h.index[plan.LinkKey{Namespace: "z0", Name: plan.FabricName(0)}]}
	var ours, raw, rival rounds
	for range benchRounds {
		raw.time(func() {
			sp, err := g.h.open("z0")
			if err != nil {
				b.Fatal(err)
			}
			rawEntries(b, map[string]*netlink.Conn{"": g.h.own.conn, "z0": sp.conn}, index, steps)
			g.h.closeSpaces()
		})
		g.empty(b, bare)
		ours.time(func() {
			if result := g.m.Apply(context.Background(), desired.LinksDelta{FDB: want.FDB, Neighs: want.Neighs}); len(result.Steps) != 2*peers {
				b.Fatalf("%d steps, want %d", len(result.Steps), 2*peers)
			}
		})
		g.empty(b, bare)
	}
	for range 3 {
		batches := w.batches(b, steps)
		rival.time(func() {
			for _, run := range batches {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
		g.empty(b, bare)
	}
	b.Logf("%d entries: ours %v, bare loop %v, ip and bridge -batch %v", 2*peers, ours.median(), raw.median(), rival.median())
	tell(b, "entries_vs_raw", "%.2f", raw.median().Seconds()/ours.median().Seconds())
	tell(b, "entries_vs_batch", "%.2f", rival.median().Seconds()/ours.median().Seconds())
}

// empty takes all entries away.
func (g *guarded) empty(b *testing.B, bare desired.Links) {
	g.h.views = map[string]*view{}
	pass(b, g.m, bare)
	time.Sleep(10 * watchQuiet) // the watch receives all of this outside the measured time
	g.h.Observed()
}

// batches returns what runs ip -batch and bridge -batch over the steps.
func (w *world) batches(b *testing.B, steps []plan.Step) []func() error {
	var runs []func() error
	for _, tool := range []struct {
		name, namespace string
		op              plan.Op
	}{{"bridge", "cn1", plan.OpSetFDB}, {"ip", "z0", plan.OpSetNeigh}} {
		path, err := exec.LookPath(tool.name)
		if err != nil {
			b.Skipf("no %s here: %v", tool.name, err)
		}
		var text bytes.Buffer
		for _, s := range steps {
			if s.Op == tool.op {
				s.Namespace = ""
				line := s.String()
				text.WriteString(line[len(tool.name)+1:] + "\n")
			}
		}
		runs = append(runs, func() error {
			return w.within(tool.namespace, func() error {
				cmd := exec.Command(path, "-batch", "-")
				cmd.Stdin = bytes.NewReader(text.Bytes())
				if out, err := cmd.CombinedOutput(); err != nil {
					return fmt.Errorf("%s -batch: %w: %s", tool.name, err, out)
				}
				return nil
			})
		})
	}
	return runs
}

// BenchmarkKernelStacks makes 500 fabrics from nothing, each a VXLAN device and
// a macvlan in a VM's namespace with its probes and address: by a pass, its two
// dumps included, and by a bare loop that sends the same messages.
func BenchmarkKernelStacks(b *testing.B) { benchmarkStacks(b, 0, benchRounds, "stacks_vs_raw") }

// BenchmarkTaggedStacks is the same with a VLAN device between the two: a full
// stack. It runs in the guest kernel, which is slow: with fewer rounds.
func BenchmarkTaggedStacks(b *testing.B) { benchmarkStacks(b, 7, 3, "tagged_stacks_vs_raw") }

func benchmarkStacks(b *testing.B, vlan uint16, times int, key string) {
	w := newWorld(b)
	if vlan != 0 && !w.has8021Q() {
		b.Skip("this kernel has no 802.1Q: run the compiled benchmark in a kernel that has it")
	}
	w.namespace("z0")
	want := crowd(500, 0, 1)
	if vlan != 0 {
		for i := range want.Fabrics {
			f := &want.Fabrics[i]
			f.VLAN, f.MTU = vlan, f.MTU-4
			want.VLANs = append(want.VLANs, desired.VLAN{VNet: f.VNet, ID: vlan, MTU: f.MTU})
		}
	}
	g := benchNode(w, want, time.Hour)
	var ours, raw rounds
	for range times {
		ours.time(func() { pass(b, g.m, want) })
		steps := g.stepsFor(b, want)
		raw.time(func() { g.rawStacks(b, steps) })
		pass(b, g.m, desired.Links{})
	}
	b.Logf("500 fabrics, VLAN %d: a pass %v, bare loop %v", vlan, ours.median(), raw.median())
	tell(b, key, "%.2f", raw.median().Seconds()/ours.median().Seconds())
}

// stepsFor takes everything away and returns the steps that make it again.
func (g *guarded) stepsFor(b *testing.B, want desired.Links) []plan.Step {
	have, err := g.h.Dump(context.Background(), []string{"z0"})
	if err != nil {
		b.Fatal(err)
	}
	numbers := plan.Numbers{}
	for i := range want.Fabrics {
		n, _ := g.m.numbers.Lookup(want.Fabrics[i].MAC)
		numbers.Adopt(want.Fabrics[i].MAC, n)
	}
	steps := plan.Plan(want, plan.Snapshot{}, numbers, true).Steps
	if errs := g.h.Do(context.Background(), plan.Plan(desired.Links{}, have, g.m.numbers, true).Steps); errs != nil {
		b.Fatal(errors.Join(errs...))
	}
	return steps
}

// rawStacks sends what makes the links, in two sockets' batches.
func (g *guarded) rawStacks(b *testing.B, steps []plan.Step) {
	sp, err := g.h.open("z0")
	if err != nil {
		b.Fatal(err)
	}
	defer g.h.closeSpaces()
	index := map[string]int32{}
	batch := func(conn *netlink.Conn, encode func(add func(typ netlink.HeaderType, flags netlink.HeaderFlags, body func(e *wire.Encoder)))) {
		var messages []netlink.Message
		send := func() {
			if len(messages) == 0 {
				return
			}
			messages[len(messages)-1].Header.Flags |= netlink.Acknowledge
			if _, err := conn.SendMessages(messages); err != nil {
				b.Fatal(err)
			}
			if _, err := conn.Receive(); err != nil && !errors.Is(err, unix.EEXIST) {
				b.Fatal(err)
			}
			messages = messages[:0]
		}
		encode(func(typ netlink.HeaderType, flags netlink.HeaderFlags, body func(e *wire.Encoder)) {
			var e wire.Encoder
			body(&e)
			messages = append(messages, netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | flags}, Data: e.B})
			if len(messages) >= batchMessages {
				send()
			}
		})
		send()
	}
	next := g.h.lastIndex
	batch(g.h.own.conn, func(add func(netlink.HeaderType, netlink.HeaderFlags, func(e *wire.Encoder))) {
		for i := range steps {
			s := &steps[i]
			if s.Op != plan.OpAddLink {
				continue
			}
			next++
			index[s.Link] = next
			if s.Spec.Kind != plan.KindMacvlan {
				add(unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) {
					if s.Spec.Kind == plan.KindVXLAN {
						e.VXLAN(s.Spec, next)
					} else {
						e.VLAN(s.Spec, next, index[s.Spec.Parent])
					}
				})
				add(unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Quiet(next) })
				add(unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Set(s.Spec, next, plan.ChangeUp) })
			} else {
				add(unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) { e.Macvlan(s.Spec, next, index[s.Spec.Parent], int(sp.file.Fd())) })
			}
		}
	})
	batch(sp.conn, func(add func(netlink.HeaderType, netlink.HeaderFlags, func(e *wire.Encoder))) {
		for i := range steps {
			switch s := &steps[i]; s.Op {
			case plan.OpSetProbes:
				add(unix.RTM_SETNEIGHTBL, 0, func(e *wire.Encoder) { e.Probes(*s, index[s.Link]) })
			case plan.OpAddAddress:
				add(unix.RTM_NEWADDR, flagsReplace, func(e *wire.Encoder) { e.Address(*s, index[s.Link]) })
			}
		}
	})
	g.h.lastIndex = next
}

// BenchmarkKernelNoop is a pass over an unchanged node of 500 fabrics in as many
// VM namespaces, 25,000 neighbours and as many forwarding entries. Each pass reads all
// namespaces; the agent's own passes read a quarter of them, and those with notifications.
//
// Four fifths of the time are the kernel's, and half of that is neigh_dump_info: a dump of
// neighbours walks those of all namespaces, 12.5 million steps for the 500 dumps, each
// a few reads of memory that are not next to each other. So the time depends on the
// cache, and on the programs that share it. The processor's time is told too: it does
// not count waiting for a processor.
func BenchmarkKernelNoop(b *testing.B) {
	const fabrics, peers = 500, 50
	w := newWorld(b)
	for i := range fabrics {
		w.namespace(fmt.Sprintf("z%d", i))
	}
	want := crowd(fabrics, peers, fabrics)
	g := benchNode(w, want, 1)
	pass(b, g.m, want)
	var took, processor, system rounds
	var switches, preempted int64
	for range benchRounds {
		clear(g.h.views) // all namespaces are read
		before := usage(b)
		var result Result
		var err error
		took.time(func() { result, err = g.m.Pass(context.Background(), want, true) })
		after := usage(b)
		user := time.Duration(after.Utime.Nano() - before.Utime.Nano())
		sys := time.Duration(after.Stime.Nano() - before.Stime.Nano())
		processor, system = append(processor, user+sys), append(system, sys)
		switches, preempted = switches+after.Nvcsw-before.Nvcsw, preempted+after.Nivcsw-before.Nivcsw
		if err != nil || !result.Matched || len(result.Steps) != 0 {
			b.Errorf("%v, matched %v, %d steps, want none: %v", err, result.Matched, len(result.Steps), texts(result.Steps[:min(len(result.Steps), 8)]))
		}
	}
	b.Logf("passes: median %v, all %v; processor %v, of that the kernel %v; %d waits and %d preemptions in a pass", took.median(), took, processor.median(), system.median(), switches/benchRounds, preempted/benchRounds)
	tell(b, "noop_pass_ms", "%.0f", float64(took.median().Microseconds())/1000)
	tell(b, "noop_pass_cpu_ms", "%.0f", float64(processor.median().Microseconds())/1000)
}

// BenchmarkKernelOwnNIC adds and removes one NIC of a node with 1,000 VMs, each in a
// namespace and on a vnet with 50 others, 200 times: half of them on a vnet of the node,
// half as the first and last of a vnet. The time is that of Apply: reading the VM's
// namespace, making the link and all on it, and reading back.
func BenchmarkKernelOwnNIC(b *testing.B) {
	const vms, peers, times = 1000, 50, 200
	w := newWorld(b)
	for i := range vms + 1 {
		w.namespace(fmt.Sprintf("z%d", i))
	}
	all := crowd(vms+1, peers, vms+1)
	want := without(all, vms)
	g := benchNode(w, want, time.Hour)
	pass(b, g.m, want)
	for end := time.Now().Add(patience); ; { // so many notifications do not fit into the socket
		g.settled()
		if result := g.m.Apply(context.Background(), desired.LinksDelta{}); result.Matched {
			break
		}
		if time.Now().After(end) {
			b.Fatal("the kernel does not become quiet")
		}
		pass(b, g.m, want)
	}
	var added, removed rounds
	for i := range times {
		on, off := onlyNIC(all, i%2 == 0)
		for _, turn := range []struct {
			delta desired.LinksDelta
			took  *rounds
		}{{on, &added}, {off, &removed}} {
			var result Result
			turn.took.time(func() { result = g.m.Apply(context.Background(), turn.delta) })
			if !result.Matched || len(result.Steps) == 0 {
				b.Fatalf("round %d: look %v, failures %v, stirred %v, %d steps", i, result.Look, result.Failures, result.Stirred, len(result.Steps))
			}
		}
	}
	b.Logf("a NIC more: median %v, 99 %% %v; a NIC less: median %v, 99 %% %v", added.median(), added.percentile(99), removed.median(), removed.percentile(99))
	tell(b, "own_nic_p99_ms_1000vms", "%.1f", float64(added.percentile(99).Microseconds())/1000)
}

// benchSecured names the variable with which links are attached with port security.
const benchSecured = "RUTTER_BENCH_SECURED"

func benchNode(w *world, want desired.Links, turn time.Duration) *guarded {
	if os.Getenv(benchSecured) == "" {
		return guard(w, want, turn)
	}
	g := guard(w, want, turn, w.filter("cn1"))
	g.m = NewManager(ManagerConfig{Kernel: g.h, Secure: required})
	return g
}

// usage is what the process used so far.
func usage(b *testing.B) (u unix.Rusage) {
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u
}

// onlyNIC are the deltas that make and remove the last fabric of a crowd: on the vnet of the
// first one, or on its own.
func onlyNIC(all desired.Links, second bool) (on, off desired.LinksDelta) {
	last := len(all.Fabrics) - 1
	peers := len(all.Neighs) / len(all.Fabrics)
	f, at := all.Fabrics[last], last
	on.Part, off.Part = &desired.Part{NICs: []log.MAC{f.MAC}}, &desired.Part{NICs: []log.MAC{f.MAC}}
	if second {
		at = 0
		f.VNet, f.Addresses = all.Fabrics[0].VNet, []netip.Prefix{prefix("10.7.255.253/16")}
	} else {
		on.Part.New, off.Part.NoVXLANs = []uint32{f.VNet}, []uint32{f.VNet}
		on.Part.Links.FDB = all.FDB[last*peers:]
	}
	on.Part.Links.VXLANs, on.Part.Links.Fabrics = all.VXLANs[at:at+1], []desired.Fabric{f}
	for _, n := range all.Neighs[at*peers : (at+1)*peers] {
		n.Link = f.MAC
		on.Part.Links.Neighs = append(on.Part.Links.Neighs, n)
	}
	return on, off
}

// without leaves out the last fabrics of a crowd, after the first n.
func without(all desired.Links, n int) desired.Links {
	peers := len(all.Neighs) / len(all.Fabrics)
	all.Fabrics, all.VXLANs = slices.Clip(all.Fabrics[:n]), slices.Clip(all.VXLANs[:n])
	all.Neighs, all.FDB = slices.Clip(all.Neighs[:n*peers]), slices.Clip(all.FDB[:n*peers])
	return all
}

// percentile returns the time that p of 100 rounds did not exceed.
func (r *rounds) percentile(p int) time.Duration {
	sorted := slices.Sorted(slices.Values(*r))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}
