package madelog

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"rutter/log"
	"rutter/projections/rules"
	"rutter/raftstore/history"
)

// uuid names the nth thing of a sort, of the log of one round.
func uuid(sort, round byte, n int) log.UUID {
	return log.UUID{0: sort, 1: round, 6: 0x40, 8: 0x80, 12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}
}

// Make makes the folder of a log with about so many changes, and returns how many they
// are, and its cluster. Logs of different rounds have nothing in common.
func Make(dir string, fill Fill, round byte, changes int) (made int, cluster log.UUID, err error) {
	cluster = log.UUID{0: 0x99, 1: round, 6: 0x40, 8: 0x80, 15: 1}
	w, err := history.CreateFolder(dir, history.FolderStart{Cluster: cluster})
	if err != nil {
		return 0, cluster, err
	}
	m := &maker{w: w, enc: log.NewEncoder(), round: round, now: log.TimeOf(time.Now().Add(-24 * time.Hour))}
	if err := fill(m, changes); err != nil {
		return 0, cluster, errors.Join(err, w.Abandon())
	}
	return m.changes, cluster, w.Close()
}

// Fill makes the changes of a log: Updates or Mixed.
type Fill func(m *maker, changes int) error

// maker makes the folder of a log, by the rules of the servers.
type maker struct {
	w       *history.FolderWriter
	enc     *log.Encoder
	head    log.Entry
	round   byte
	changes int
	now     log.Time
}

// change makes a change of one operation, and appends its events.
func (m *maker) change(op log.Op) error {
	if op.Action == log.Create {
		for _, d := range log.Diff(log.NewObject(op.Kind), op.Object) {
			op.Set = append(op.Set, d.Path)
		}
		slices.Sort(op.Set)
	}
	m.changes++
	m.now += log.Time(time.Millisecond)
	c := &log.Change{ID: uuid(0xcc, m.round, m.changes), Time: m.now, Actor: "bench", Seed: uint64(m.changes), Ops: []log.Op{op}}
	events, result := rules.Decide(m.w.State(), c)
	if result.Refusal != nil {
		return fmt.Errorf("%s %s %s: %w", op.Action, op.Kind, op.ID, result.Refusal)
	}
	for _, e := range events {
		b, err := m.enc.Event(e)
		if err != nil {
			return err
		}
		m.head.Seq++
		m.head.Hash, m.head.Bytes = m.head.Hash.Next(m.head.Seq, b), b
		if err := m.w.Append(m.head); err != nil {
			return err
		}
	}
	return nil
}

func (m *maker) create(o log.Object) error {
	return m.change(log.Op{Action: log.Create, Kind: o.Kind(), Object: o})
}

func (m *maker) update(id string, o log.Object, fields ...string) error {
	return m.change(log.Op{Action: log.Update, Kind: o.Kind(), ID: id, Object: o, Set: fields})
}

func (m *maker) vm(n int) *log.VM {
	text := strings.Repeat("x", 60) // events of about the size of those that are appended
	return &log.VM{UUID: uuid('v', m.round, n), Alias: text, Brand: text, ZoneState: text, OwnerUUID: uuid('o', m.round, n%50), State: "running", ServerUUID: uuid('s', m.round, n%20), Quota: 10}
}

// Updates is a log of updates of VMs, one after another, behind their creation.
func Updates(m *maker, changes int) error {
	vms := changes / 16
	for n := range vms {
		if err := m.create(m.vm(n)); err != nil {
			return err
		}
	}
	for n := range changes - vms {
		if err := m.update(uuid('v', m.round, n%vms).String(), &log.VM{Quota: 100 + uint64(n/vms)}, "quota"); err != nil {
			return err
		}
	}
	return nil
}

// The mixed log: how many tenants' networks there are, and how many changes make one more
// VM with its NIC, two updates of each, and a reserved address that goes again.
const (
	mixedNetworks = 100
	mixedStep     = 8
)

// Mixed is a log of eight kinds that refer to each other, as a cloud makes it.
func Mixed(m *maker, changes int) error {
	tag := fmt.Sprintf("bulk%d", m.round)
	if err := m.create(&log.NICTag{Name: tag, UUID: uuid('t', m.round, 0)}); err != nil {
		return err
	}
	for n := range 20 {
		if err := m.create(&log.Server{UUID: uuid('s', m.round, n), Hostname: fmt.Sprintf("cn%d-%d", m.round, n)}); err != nil {
			return err
		}
	}
	for n := range mixedNetworks {
		if err := m.create(m.network(tag, n)); err != nil {
			return err
		}
	}
	for n := 0; m.changes < changes; n++ {
		if err := m.step(n); err != nil {
			return err
		}
		if n%200 == 199 {
			if err := m.create(m.network(tag, mixedNetworks+n/200)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *maker) network(tag string, n int) *log.Network {
	addr := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(n), 0, last}) }
	return &log.Network{
		UUID: uuid('n', m.round, n), Name: fmt.Sprintf("net%d-%d", m.round, n), NICTag: tag, VLANID: uint32(2 + n), Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 0, 0}), 16),
		ProvisionStart: addr(1), ProvisionEnd: netip.AddrFrom4([4]byte{10, byte(n), 255, 250}),
	}
}

// step makes mixedStep changes.
func (m *maker) step(n int) error {
	net := uuid('n', m.round, n%mixedNetworks)
	ip := func(of int, half byte) netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(of % mixedNetworks), half + byte(of/mixedNetworks/250), byte(1 + of/mixedNetworks%250)})
	}
	mac := func(of int) log.MAC {
		return log.MAC{0x92, 0xb8, m.round, byte(of >> 16), byte(of >> 8), byte(of)}
	}
	older := n - min(n, 7)
	vm := m.vm(n)
	reserved := &log.IP{NetworkUUID: net, IP: ip(n, 128), Reserved: true}
	steps := []func() error{
		func() error { return m.create(vm) },
		func() error {
			return m.create(&log.NIC{MAC: mac(n), BelongsToType: "zone", BelongsToUUID: vm.UUID, OwnerUUID: vm.OwnerUUID, NetworkUUID: net, IP: ip(n, 1), State: "provisioning"})
		},
		func() error { return m.create(reserved) },
		func() error { return m.update(mac(older).String(), &log.NIC{State: "running"}, "state") },
		func() error {
			return m.update(uuid('v', m.round, older).String(), &log.VM{Quota: 100 + uint64(n)}, "quota")
		},
		func() error { return m.update(mac(older).String(), &log.NIC{State: "stopped"}, "state") },
		func() error { return m.change(log.Op{Action: log.Delete, Kind: log.KindIP, ID: reserved.ID()}) },
		func() error {
			return m.update(uuid('v', m.round, older).String(), &log.VM{State: "stopped", CPUCap: uint64(n + 1)}, "cpu_cap", "state")
		},
	}
	for _, do := range steps[:mixedStep] {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}
