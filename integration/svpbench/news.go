package main

import (
	"errors"
	"iter"
	"net/netip"
	"slices"
	"time"

	"rutter/log"
	"rutter/varp"
)

const (
	// restartedLog is how many entries the log of a restarted server has: as many as
	// one reads at its start.
	restartedLog = 65536
	// illumosBatch is the time from one LOG_REQ of illumos to the next while there are
	// records, illumosAsks what it asks for, the status left out.
	illumosBatch = 2 * time.Second
	illumosAsks  = 1020
)

// newsAfterRestart is the time from a move, just after a restart of a server that knows
// nothing of its clients, until a client of illumos' pace hears of it: batches of two
// seconds, which are counted and not waited for. The log is full of changes on the
// client's vnet.
func newsAfterRestart() (time.Duration, error) {
	s := &movesLog{moved: 1 << 14}
	events, err := varp.NewShootdowns(varp.ShootdownConfig{Source: s})
	if err != nil {
		return 0, err
	}
	me := movesAt
	for batches := 1; batches < restartedLog; batches++ {
		records, ok := events.Events(nil, me, illumosAsks)
		if !ok {
			return 0, errors.New("the log cannot be read")
		}
		if batches > 1 && slices.ContainsFunc(records, func(r varp.Record) bool { return r.MAC == moveMAC(s.moved) }) {
			return time.Duration(batches-1) * illumosBatch, nil
		}
		ids := make([]log.UUID, len(records))
		for i, r := range records {
			ids[i] = r.ID
		}
		events.Remove(me, ids)
		if batches == 1 {
			s.late = 1 // the client is reading what it may have missed: now the move
		}
	}
	return 0, errors.New("the client never hears of the move")
}

var (
	movesAt  = netip.MustParseAddr("192.0.2.1")
	movesNet = log.UUID{1}
)

const movesVNet = 100

func moveMAC(i int) log.MAC { return log.MAC{0x90, 0xb8, 0xd0, 0, byte(i >> 8), byte(i)} }

// movesLog is the log of a server, and its rows: NICs that move in turn, and one more
// move later.
type movesLog struct {
	varp.Rows // what shootdowns do not ask
	moved     int
	late      int
}

// Head implements varp.Source.
func (s *movesLog) Head() log.Cursor {
	return log.Cursor{Cluster: log.UUID{9}, Seq: log.Seq(2*restartedLog + s.late)}
}

// View implements varp.Source.
func (s *movesLog) View(fn func(varp.Rows)) { fn(s) }

// Entries implements varp.Source.
func (s *movesLog) Entries(after log.Seq, limit int) (entries []log.Entry, err error) {
	for seq := after + 1; seq <= s.Head().Seq && len(entries) < limit; seq++ {
		nic := &log.NIC{MAC: moveMAC(int(seq) % s.moved), BelongsToType: "zone", NetworkUUID: movesNet, CNUUID: log.UUID{2, byte(seq)}}
		if seq > 2*restartedLog {
			nic.MAC = moveMAC(s.moved)
		}
		was := log.Clone(nic).(*log.NIC)
		was.CNUUID = log.UUID{3}
		b, err := log.NewEncoder().Event(&log.Event{Kind: nic.Kind(), Action: log.Update, ID: nic.ID(), Revision: 1, Time: 1, Object: nic, Changed: log.Diff(was, nic)})
		if err != nil {
			return nil, err
		}
		entries = append(entries, log.Entry{Seq: seq, Bytes: b})
	}
	return entries, nil
}

// Nodes implements varp.Rows.
func (s *movesLog) Nodes(netip.Addr) []log.UUID { return []log.UUID{{1}} }

// VNets implements varp.Rows.
func (s *movesLog) VNets(log.UUID) []uint32 { return []uint32{movesVNet} }

// VNetOf implements varp.Rows.
func (s *movesLog) VNetOf(log.UUID) (uint32, uint16, bool) { return movesVNet, 2, true }

// VL2 implements varp.Lookup.
func (s *movesLog) VL2(uint32, log.MAC) (varp.Underlay, bool) {
	return varp.Underlay{Addr: movesAt, Port: 4789}, true
}

// NICs implements varp.Rows.
func (s *movesLog) NICs(vnet uint32, after log.MAC) iter.Seq[varp.NICRow] {
	return func(yield func(varp.NICRow) bool) {
		for i := range s.moved {
			if mac := moveMAC(i); mac.Compare(after) > 0 && !yield(varp.NICRow{VNet: vnet, VLAN: 2, MAC: mac, Seq: 1}) {
				return
			}
		}
	}
}
