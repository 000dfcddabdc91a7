package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"rutter/projections/desired"

	"rutter/log"
	"rutter/raftstore/history"
)

// The log that time travel is measured on: fabrics with NICs of VMs on compute
// nodes, made once, and kept for the next time.
const (
	stateCNs        = 10_000
	stateNICsPerNet = 100 // two networks on each vnet
	stateQueries    = 100 // of each sort
	stateName       = "bench-state"
	offlineGC       = 400 // the garbage collector's goal, as `rutter log` has it offline
)

// measureState returns the p99 of the time that one object, one CN and one vnet
// take at a random place of a log of events entries and objects objects, in
// milliseconds. The folder is made if it is not there.
func measureState(ctx context.Context, dir string, events, objects int) (p99 float64, err error) {
	dir = filepath.Join(dir, fmt.Sprintf("%s-%d-%d", stateName, events, objects))
	if _, err := os.Stat(dir); err != nil {
		begun := time.Now()
		if err := buildState(ctx, dir, events, objects); err != nil {
			return 0, err
		}
		fmt.Fprintf(os.Stderr, "a folder of %d entries was made in %.0f s\n", events, time.Since(begun).Seconds())
	}
	if err := readOnce(dir); err != nil {
		return 0, err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(offlineGC))
	f, err := history.OpenFolder(dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	m := &stateMeasure{folder: f, rng: rand.New(rand.NewPCG(1, 2)), nics: objects - stateCNs*2 - 1}
	for _, sort := range []struct {
		name string
		ask  func(context.Context, log.Seq) error
	}{{"object", m.object}, {"CN", m.cn}, {"vnet", m.vnet}} {
		var times []time.Duration
		for range stateQueries {
			seq := log.Seq(1 + m.rng.Uint64N(uint64(f.Head().Seq)))
			begun := time.Now()
			if err := sort.ask(ctx, seq); err != nil {
				return 0, err
			}
			times = append(times, time.Since(begun))
		}
		m.times = append(m.times, times...)
		fmt.Printf("state of one %s at any of %d entries: p50 %.1f ms, p99 %.1f ms\n", sort.name, f.Head().Seq, quantile(times, 0.5), quantile(times, 0.99))
		p99 = max(p99, quantile(times, 0.99))
	}
	return p99, nil
}

// readOnce reads the files, so that the system holds them, as it does for a server
// that wrote them. What is measured is the reading, not this machine's disk.
func readOnce(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		in, err := os.Open(filepath.Join(dir, f.Name()))
		if err == nil {
			_, err = io.Copy(io.Discard, in)
			err = errors.Join(err, in.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// quantile returns a quantile, by nearest rank, in milliseconds.
func quantile(times []time.Duration, q float64) float64 {
	slices.Sort(times)
	return float64(times[max(0, int(math.Ceil(q*float64(len(times))))-1)]) / float64(time.Millisecond)
}

type stateMeasure struct {
	folder *history.Folder
	rng    *rand.Rand
	nics   int
	times  []time.Duration
}

func (m *stateMeasure) object(ctx context.Context, seq log.Seq) error {
	_, _, err := m.folder.ObjectAt(ctx, history.Ref{Kind: log.KindNIC, ID: stateMAC(m.rng.IntN(m.nics)).String()}, seq)
	return err
}

func (m *stateMeasure) cn(ctx context.Context, seq log.Seq) error {
	cn := stateUUID('c', m.rng.IntN(stateCNs))
	state, err := m.folder.PartAt(ctx, history.Part{CNs: []log.UUID{cn}}, seq)
	if err == nil {
		desired.Of(state, cn)
	}
	return err
}

func (m *stateMeasure) vnet(ctx context.Context, seq log.Seq) error {
	_, err := m.folder.PartAt(ctx, history.Part{VNets: []uint32{stateVNet(m.rng.IntN(m.nics))}}, seq)
	return err
}

func stateUUID(kind byte, n int) (u log.UUID) {
	u[0], u[6], u[8] = kind, 0x40, 0x80
	binary.BigEndian.PutUint32(u[12:], uint32(n))
	return u
}

func stateMAC(n int) (m log.MAC) {
	binary.BigEndian.PutUint32(m[2:], uint32(n))
	m[0], m[1] = 0x92, 0xb8
	return m
}

// stateVNet is that of the nth NIC.
func stateVNet(n int) uint32 { return uint32(1 + n/stateNICsPerNet/2) }

// builder writes events that it makes itself: deciding ten million changes would
// take most of the time, and measures something else.
type builder struct {
	ctx     context.Context
	writer  *history.FolderWriter
	encoder *log.Encoder
	hash    log.Hash
	seq     log.Seq
}

func buildState(ctx context.Context, dir string, events, objects int) error {
	w, err := history.CreateFolder(dir, history.FolderStart{Cluster: stateUUID('l', 1)})
	if err != nil {
		return err
	}
	b := &builder{ctx: ctx, writer: w, encoder: log.NewEncoder()}
	nics := objects - 2*stateCNs - 1
	if err = b.infrastructure(nics); err == nil {
		err = b.fill(nics, events)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

// put appends the event that makes an object what it is now.
func (b *builder) put(o log.Object, changed []log.FieldChange, scopes ...log.Scope) error {
	if b.seq%(1<<16) == 0 && b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	e := &log.Event{
		Kind: o.Kind(), Action: log.Create, ID: o.ID(), Revision: 1, Actor: "bench", ChangeID: stateUUID('h', int(b.seq)),
		Time: log.Time(1_800_000_000_000_000_000 + int64(b.seq)*1_000_000), Object: o, Changed: changed, Scopes: scopes,
	}
	if held, ok := b.writer.State().Find(o); ok {
		e.Action, e.Revision = log.Update, held.Revision+1
	}
	raw, err := b.encoder.Event(e)
	if err != nil {
		return err
	}
	b.seq++
	b.hash = b.hash.Next(b.seq, raw)
	return b.writer.Append(log.Entry{Seq: b.seq, Hash: b.hash, Bytes: raw})
}

// infrastructure makes the NIC tag, the CNs with their underlay NICs, and the
// networks; the latter take of what is left for NICs.
func (b *builder) infrastructure(nics int) error {
	if err := b.put(&log.NICTag{Name: "sdc_underlay", MTU: 9000}, nil, log.AllScope()); err != nil {
		return err
	}
	underlay := stateUUID('u', 0)
	if err := b.put(&log.Network{UUID: underlay, Name: "underlay", NICTag: "sdc_underlay", Subnet: subnetOf(0), MTU: 9000}, nil, log.NetworkScope(underlay)); err != nil {
		return err
	}
	for i := range stateCNs {
		cn := stateUUID('c', i)
		if err := b.put(&log.Server{UUID: cn, Hostname: fmt.Sprintf("cn%05d", i), Status: "running"}, nil, log.CNScope(cn)); err != nil {
			return err
		}
		mac := stateMAC(i)
		mac[0] = 0x96
		if err := b.put(&log.NIC{
			MAC: mac, IP: addrOf(0, i), NetworkUUID: underlay, BelongsToUUID: cn, BelongsToType: "server", CNUUID: cn,
			OwnerUUID: cn, NICTag: "sdc_underlay", Underlay: true, State: "running",
		}, nil, log.CNScope(cn), log.NetworkScope(underlay)); err != nil {
			return err
		}
	}
	for n := range (nics + stateNICsPerNet - 1) / stateNICsPerNet {
		vnet := stateVNet(n * stateNICsPerNet)
		if err := b.put(&log.Network{
			UUID: stateUUID('n', n), Name: fmt.Sprintf("net%d", n), NICTag: "sdc_underlay", Fabric: true, VNetID: vnet, VLANID: uint32(2 + n%2),
			Subnet: subnetOf(1 + n%250), MTU: 8900, OwnerUUIDs: []log.UUID{stateUUID('o', n/2)},
		}, nil, log.VNetScope(vnet)); err != nil {
			return err
		}
	}
	return nil
}

// fill makes the NICs, and updates them in random order: most reports of state,
// some moves to another CN.
func (b *builder) fill(nics, events int) error {
	rng := rand.New(rand.NewPCG(3, 4))
	at := make([]uint32, nics) // the CN of each
	nic := func(n, round int) *log.NIC {
		return &log.NIC{
			MAC: stateMAC(n), IP: addrOf(1+n/stateNICsPerNet%250, n%stateNICsPerNet), NetworkUUID: stateUUID('n', n/stateNICsPerNet),
			BelongsToUUID: stateUUID('v', n), BelongsToType: "zone", OwnerUUID: stateUUID('o', n/stateNICsPerNet/2),
			CNUUID: stateUUID('c', int(at[n])), Primary: true, State: [...]string{"running", "stopped"}[round%2],
		}
	}
	for n := range nics {
		at[n] = uint32(rng.IntN(stateCNs))
		if err := b.put(nic(n, 0), nil, log.VNetScope(stateVNet(n)), log.CNScope(stateUUID('c', int(at[n])))); err != nil {
			return err
		}
	}
	for round := 1; int(b.seq) < events; round++ {
		n := rng.IntN(nics)
		scopes := []log.Scope{log.VNetScope(stateVNet(n)), log.CNScope(stateUUID('c', int(at[n])))}
		changed := []log.FieldChange{{Path: "state", Old: "running"}}
		if rng.IntN(10) == 0 {
			changed = append(changed, log.FieldChange{Path: "cn_uuid", Old: stateUUID('c', int(at[n])).String()})
			at[n] = uint32(rng.IntN(stateCNs))
			scopes = append(scopes, log.CNScope(stateUUID('c', int(at[n]))))
		}
		if err := b.put(nic(n, round), changed, scopes...); err != nil {
			return err
		}
	}
	return nil
}
