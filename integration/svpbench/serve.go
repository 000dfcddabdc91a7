package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/log"
	"rutter/projections"
	"rutter/varp"
)

// hello is what a server says first, as one line of JSON.
type hello struct {
	SVP, Echo       string  // addresses
	BytesPerMapping float64 // heap of the state, for each NIC
	Copied          float64 // and of varp.Mappings
}

// counts is what a server answers to the command "counts".
type counts struct {
	Mallocs, Lookups, Changes uint64
}

// shared is a state as the store holds it, one writer and many readers, with
// the newest entries of its log: the varp.Source of a server.
type shared struct {
	mu      sync.RWMutex
	state   *projections.State
	head    log.Cursor
	entries []log.Entry // the last ones, up to head
}

// ring is how many entries are kept at least.
const ring = 1 << 16

// Head implements varp.Source.
func (s *shared) Head() log.Cursor {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.head
}

// Entries implements varp.Source.
func (s *shared) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	behind := int(s.head.Seq - after)
	if behind > len(s.entries) {
		return nil, log.ErrCompacted
	}
	rest := s.entries[len(s.entries)-behind:]
	return slices.Clone(rest[:min(limit, len(rest))]), nil
}

// View implements varp.Source.
func (s *shared) View(fn func(varp.Rows)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fn(rows{state: s.state})
}

// add applies an event that was encoded as entry.
func (s *shared) add(entry log.Entry, e *log.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) >= 2*ring {
		s.entries = append(s.entries[:0], s.entries[ring:]...)
	}
	s.entries = append(s.entries, entry)
	s.head.Seq, s.head.Chain = entry.Seq, entry.Hash.Prefix()
	_, err := s.state.Apply(entry.Seq, e)
	return err
}

// rows is what varp.Mappings asks a state; no client asks for shootdowns here.
type rows struct {
	varp.Rows
	state *projections.State
}

func (r rows) Networks() iter.Seq2[log.UUID, uint32] {
	return func(yield func(log.UUID, uint32) bool) {
		for rec := range r.state.List(log.KindNetwork) {
			if n := rec.Object.(*log.Network); n.Fabric && !yield(n.UUID, n.VNetID) {
				return
			}
		}
	}
}

func (r rows) AllNICs(after log.MAC) iter.Seq[*log.NIC] {
	return func(yield func(*log.NIC) bool) {
		for rec := range r.state.NICsAfter(after) {
			if !yield(rec.Object.(*log.NIC)) {
				return
			}
		}
	}
}

// serve answers for a state of so many mappings until in ends. It takes
// commands from in, one a line, and answers each with a line.
func serve(mappings int, in io.Reader, out io.Writer) error {
	state, perMapping, err := build(mappings)
	if err != nil {
		return err
	}
	s := &shared{state: state, head: log.Cursor{Seq: 1 << 32}} // above every loaded row
	before := heap()
	lookup := varp.NewMappings(s, nil)
	lookup.VL2(0, log.MAC{}) // makes it
	copied := float64(heap()-before) / float64(mappings)
	server, err := varp.NewServer(varp.Config{Lookup: lookup})
	if err != nil {
		return err
	}
	var listeners [2]net.Listener
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := new(errgroup.Group)
	g.Go(func() error { return server.Run(ctx, listeners[0]) })
	g.Go(func() error { return echo(listeners[1]) })
	encoder := json.NewEncoder(out)
	err = encoder.Encode(hello{listeners[0].Addr().String(), listeners[1].Addr().String(), perMapping, copied})
	w := &writer{shared: s, mappings: mappings}
	for lines := bufio.NewScanner(in); err == nil && lines.Scan(); {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		if command == "writes" {
			w.stop()
			if rate, _ := strconv.Atoi(argument); rate > 0 {
				w.start(rate)
			}
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		st := server.Stats()
		err = encoder.Encode(counts{m.Mallocs, st.VL2 + st.VL3, w.done})
	}
	w.stop()
	cancel()
	return errors.Join(err, w.err, listeners[1].Close(), g.Wait())
}

// echo sends back what comes, until ln is closed.
func echo(ln net.Listener) error {
	for {
		nc, err := ln.Accept()
		if err != nil {
			return nil // closed: that is the end
		}
		go func() {
			defer nc.Close()
			buf := make([]byte, 64<<10)
			for {
				n, err := nc.Read(buf)
				if err != nil {
					return
				}
				if _, err := nc.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// The cloud that is looked up: nodes, and vnets of so many NICs each.
const (
	nodes    = 100
	perVNet  = 1000
	firstNet = 1000 // number of the first vnet
)

func uuid(sort byte, n int) log.UUID {
	return log.UUID{0: sort, 6: 0x40, 8: 0x80, 12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}
}

// mapping returns what names the i-th NIC.
func mapping(i int) (vnet uint32, mac log.MAC, ip netip.Addr) {
	in := i%perVNet + 2
	return uint32(firstNet + i/perVNet), log.MAC{0x90, 0xb8, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)},
		netip.AddrFrom4([4]byte{10, 0, byte(in >> 8), byte(in)})
}

func nicOf(i int) *log.NIC {
	_, mac, ip := mapping(i)
	return &log.NIC{
		MAC: mac, IP: ip, BelongsToType: "other", BelongsToUUID: uuid(5, i), OwnerUUID: uuid(4, i/perVNet), State: "running",
		Created: 1, Modified: 1, NetworkUUID: uuid(3, i/perVNet), CNUUID: uuid(1, i%nodes), Primary: true,
	}
}

// build makes the state, and measures what one NIC takes of the heap: each
// comes as bytes, as from an agent's cache, and shares nothing with another.
func build(mappings int) (*projections.State, float64, error) {
	state, encoder, seq := projections.NewSmallState(), log.NewEncoder(), log.Seq(0)
	load := func(o log.Object) error {
		b, err := encoder.Object(o)
		if err != nil {
			return err
		}
		if o, err = log.DecodeObject(o.Kind(), o.ID(), b); err != nil {
			return err
		}
		seq++
		return state.Load(projections.Record{Object: o, Revision: 1, Seq: seq})
	}
	around := []log.Object{
		&log.NICTag{Name: "overlay", UUID: uuid(9, 1), MTU: 9000},
		&log.Network{UUID: uuid(9, 2), Name: "underlay", NICTag: "overlay", VLANID: 4, Subnet: netip.MustParsePrefix("192.168.0.0/16"), MTU: 9000},
	}
	for n := range nodes {
		around = append(around, &log.Server{UUID: uuid(1, n), Hostname: fmt.Sprintf("cn%d", n), Status: "running", Setup: true}, &log.NIC{
			MAC: log.MAC{0x02, 0, 0, 0, 0, byte(n)}, IP: netip.AddrFrom4([4]byte{192, 168, 1, byte(n + 1)}), BelongsToType: "server",
			BelongsToUUID: uuid(1, n), CNUUID: uuid(1, n), NetworkUUID: uuid(9, 2), Underlay: true, State: "running",
		})
	}
	for v := range (mappings + perVNet - 1) / perVNet {
		around = append(around, &log.Network{
			UUID: uuid(3, v), Name: fmt.Sprintf("net%d", v), NICTag: "overlay", VLANID: 2, Subnet: netip.MustParsePrefix("10.0.0.0/16"),
			MTU: 8900, Fabric: true, VNetID: uint32(firstNet + v), OwnerUUIDs: []log.UUID{uuid(4, v)}, Family: "ipv4",
		})
	}
	for _, o := range around {
		if err := load(o); err != nil {
			return nil, 0, err
		}
	}
	before := heap()
	for i := range mappings {
		if err := load(nicOf(i)); err != nil {
			return nil, 0, err
		}
	}
	return state, float64(heap()-before) / float64(mappings), nil
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// writer applies changes: it encodes and chains events that were decided
// elsewhere, and folds them into the state. Deciding is left out: with one core
// for all that a server does it would be measured in place of lookups.
type writer struct {
	shared   *shared
	mappings int

	cancel context.CancelFunc
	ended  chan struct{}
	done   uint64 // changes, as of the last stop
	err    error
	hash   log.Hash
}

func (w *writer) start(rate int) {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.ended = cancel, make(chan struct{})
	go func() {
		defer close(w.ended)
		w.err = w.run(ctx, rate)
	}()
}

func (w *writer) stop() {
	if w.cancel != nil {
		w.cancel()
		<-w.ended
		w.cancel = nil
	}
}

// perTick bounds the changes between two looks at what else there is to do:
// without it a writer that fell behind would have its one core for itself until
// it is level again, which no store does that waits for a disk.
const perTick = 32

// run makes rate changes a second, in small batches as they come from Raft.
func (w *writer) run(ctx context.Context, rate int) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	encoder, began := log.NewEncoder(), time.Now()
	for made := 0; ctx.Err() == nil; <-tick.C {
		due := int(time.Since(began).Seconds() * float64(rate))
		for due = min(due, made+perTick); made < due; made++ {
			if err := w.change(encoder, int(w.done)); err != nil {
				fmt.Fprintln(os.Stderr, "svpbench: change:", err)
				return err
			}
			w.done++
		}
	}
	return nil
}

// change moves a NIC to another node.
func (w *writer) change(encoder *log.Encoder, n int) error {
	_, mac, _ := mapping(n * 7919 % w.mappings)
	was, _ := w.shared.state.Get(log.KindNIC, mac.String()) // there is no other writer
	nic := log.Clone(was.Object).(*log.NIC)
	nic.CNUUID = uuid(1, (n/w.mappings+n)%nodes)
	e := &log.Event{
		Kind: log.KindNIC, Action: log.Update, ID: nic.ID(), Revision: was.Revision + 1, Time: log.Time(n), Actor: "bench",
		Object: nic, Changed: log.Diff(was.Object, nic),
	}
	b, err := encoder.Event(e)
	if err != nil {
		return err
	}
	seq := w.shared.head.Seq + 1
	w.hash = w.hash.Next(seq, b)
	return w.shared.add(log.Entry{Seq: seq, Hash: w.hash, Bytes: b}, e)
}
