package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
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
}

// counts is what a server answers to the command "counts".
type counts struct {
	Mallocs, Lookups, Changes uint64
}

// shared is a state as the store holds it: one writer, many readers.
type shared struct {
	mu    sync.RWMutex
	state *projections.State
}

// VL2 implements varp.Lookup.
func (s *shared) VL2(vnet uint32, mac log.MAC) (varp.Underlay, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	u, ok := s.state.VL2(vnet, mac)
	return varp.Underlay{Addr: u.Addr, Port: u.Port}, ok
}

// VL3 implements varp.Lookup.
func (s *shared) VL3(vnet uint32, ip netip.Addr) (log.MAC, varp.Underlay, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	mac, u, ok := s.state.VL3(vnet, ip)
	return mac, varp.Underlay{Addr: u.Addr, Port: u.Port}, ok
}

// serve answers for a state of so many mappings until in ends. It takes
// commands from in, one a line, and answers each with a line.
func serve(mappings int, in io.Reader, out io.Writer) error {
	state, perMapping, err := build(mappings)
	if err != nil {
		return err
	}
	s := &shared{state: state}
	server, err := varp.NewServer(varp.Config{Lookup: s})
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
	err = encoder.Encode(hello{listeners[0].Addr().String(), listeners[1].Addr().String(), perMapping})
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
	state, encoder, seq := projections.NewState(), log.NewEncoder(), log.Seq(0)
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

// writer applies changes as a server does: it decides each, encodes and chains
// its events, and folds them into the state.
type writer struct {
	shared   *shared
	mappings int

	cancel context.CancelFunc
	ended  chan struct{}
	done   uint64 // changes, as of the last stop
	err    error
	seq    log.Seq
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

// run makes rate changes a second, in small batches as they come from Raft.
func (w *writer) run(ctx context.Context, rate int) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	if w.seq == 0 {
		w.seq = 1 << 32 // above every loaded row
	}
	encoder, began := log.NewEncoder(), time.Now()
	for made := 0; ctx.Err() == nil; <-tick.C {
		for due := int(time.Since(began).Seconds() * float64(rate)); made < due; made++ {
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
	nic := nicOf(n * 7919 % w.mappings)
	nic.CNUUID = uuid(1, (n/w.mappings+n)%nodes)
	c := &log.Change{ID: uuid(7, n), Actor: "bench", Time: log.Time(n), Ops: []log.Op{{
		Action: log.Update, Kind: log.KindNIC, ID: nic.ID(), Set: []string{"cn_uuid"}, Object: nic,
	}}}
	events, result := w.shared.state.Decide(c) // only reads, and there is no other writer
	if result.Refusal != nil {
		return result.Refusal
	}
	for _, e := range events {
		b, err := encoder.Event(e)
		if err != nil {
			return err
		}
		w.seq++
		w.hash = w.hash.Next(w.seq, b)
		w.shared.mu.Lock()
		_, err = w.shared.state.Apply(w.seq, e)
		w.shared.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
