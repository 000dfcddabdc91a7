package lying

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/rules"
)

// The ids of the world, as changetest.UUID has them: #11# in a text is id(11).
var (
	tenantA, tenantB, admins = id(1), id(2), id(3)

	liar = id(11) // the CN that lies
	cns  = ids(11, 15)
	// others are the CNs that do not lie.
	others = cns[1:]

	// vms are in the log: 21 on the liar; 22 (also on the external network), 23 on the
	// liar's vnet elsewhere; 24, 25, 26 and 28 another tenant's; 27 on no CN.
	vms = ids(21, 28)
	// unmade VMs are not in the log. Of 41 to 43 it has NICs: on another CN, on none,
	// on the liar. 44 is what a task asks the liar to make, 45 another CN. Nothing
	// names 46 to 48.
	unmade = ids(41, 48)

	networks = ids(30, 39) // 38 is none, 39 a pool
	vmms     = ids(51, 57) // 55 to 57 are none at first
	moves    = ids(61, 63) // migrations; 63 is none at first
	tasks    = ids(71, 75)
)

const (
	adminNet, underlayNet, external, private, fabricA, fabricA2, fabricB, fabricB2, noNetwork, pool = 30, 31, 32, 33, 34, 35, 36, 37, 38, 39

	router = 81
)

func id(n uint64) log.UUID { return changetest.UUID(n) }

func ids(from, to uint64) (all []log.UUID) {
	for n := from; n <= to; n++ {
		all = append(all, id(n))
	}
	return all
}

// mac is the MAC 02:00:00:00:00:NN in hexadecimal.
func mac(n int) log.MAC { return log.MAC{2, 4: byte(n >> 8), 5: byte(n)} }

// maxMAC is the highest MAC of the world; those from freeMAC on belong to no NIC at first.
const (
	freeMAC = 0x40
	maxMAC  = 0x44
)

// base are the changes that make the world, all by an operator.
func base() (texts []string) {
	texts = []string{
		`create nic_tag {"name": "admin", "uuid": "#90#"}`,
		`create nic_tag {"name": "external", "uuid": "#91#"}`,
		`create nic_tag {"name": "overlay", "uuid": "#92#", "mtu": 9000}`,
		`create network {"uuid": "#30#", "name": "admin", "nic_tag": "admin", "subnet": "10.99.99.0/24", "gateway": "10.99.99.1", "provision_start_ip": "10.99.99.10", "provision_end_ip": "10.99.99.250"}`,
		`create network {"uuid": "#31#", "name": "underlay", "nic_tag": "external", "vlan_id": 4, "subnet": "192.168.0.0/24"}`,
		`create network {"uuid": "#32#", "name": "external", "nic_tag": "external", "vlan_id": 5, "subnet": "203.0.113.0/24", "gateway": "203.0.113.1",
			"resolvers": ["203.0.113.2"], "provision_start_ip": "203.0.113.10", "provision_end_ip": "203.0.113.100"}`,
		`create network {"uuid": "#33#", "name": "private", "nic_tag": "external", "vlan_id": 6, "subnet": "198.51.100.0/24", "gateway": "198.51.100.1", "owner_uuids": ["#2#"]}`,
		`create network {"uuid": "#34#", "name": "a", "nic_tag": "overlay", "vlan_id": 2, "subnet": "10.0.0.0/24", "gateway": "10.0.0.1", "resolvers": ["10.0.0.2"],
			"provision_start_ip": "10.0.0.10", "provision_end_ip": "10.0.0.200", "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`,
		`create network {"uuid": "#35#", "name": "a2", "nic_tag": "overlay", "vlan_id": 3, "subnet": "10.0.1.0/24", "gateway": "10.0.1.1", "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`,
		`create network {"uuid": "#36#", "name": "b", "nic_tag": "overlay", "vlan_id": 2, "subnet": "10.0.2.0/24", "gateway": "10.0.2.1", "owner_uuids": ["#2#"], "fabric": true, "vnet_id": 20}`,
		`create network {"uuid": "#37#", "name": "b2", "nic_tag": "overlay", "vlan_id": 3, "subnet": "10.0.3.0/24", "owner_uuids": ["#2#"], "fabric": true, "vnet_id": 20}`,
		`create network_pool {"uuid": "#39#", "name": "pool", "networks": ["#32#"]}`,
	}
	for n := range 5 {
		texts = append(texts,
			fmt.Sprintf(`create server {"uuid": "#%d#", "hostname": "cn%d"}`, 11+n, n+1),
			fmt.Sprintf(`create nic {"mac": "02:00:00:00:00:%02x", "belongs_to_type": "server", "belongs_to_uuid": "#%d#", "owner_uuid": "#3#", "network_uuid": "#31#", "underlay": true, "nic_tags_provided": ["overlay"]}`, 1+n, 11+n),
			fmt.Sprintf(`create nic {"mac": "02:00:00:00:00:%02x", "belongs_to_type": "server", "belongs_to_uuid": "#%d#", "owner_uuid": "#3#", "network_uuid": "#30#", "nic_tags_provided": ["admin"]}`, 0x11+n, 11+n))
	}
	for _, vm := range []struct {
		n, owner, cn, mac, network int
	}{{21, 1, 11, 0x21, fabricA}, {22, 1, 12, 0x22, fabricA}, {23, 1, 13, 0x23, fabricA2}, {24, 2, 12, 0x24, fabricB}, {25, 2, 14, 0x25, fabricB2}, {26, 2, 13, 0x26, fabricB}, {28, 2, 15, 0x28, private}} {
		texts = append(texts,
			fmt.Sprintf(`create vm {"uuid": "#%d#", "owner_uuid": "#%d#", "server_uuid": "#%d#", "state": "running"}`, vm.n, vm.owner, vm.cn),
			fmt.Sprintf(`create nic {"mac": "02:00:00:00:00:%02x", "belongs_to_type": "zone", "belongs_to_uuid": "#%d#", "owner_uuid": "#%d#", "network_uuid": "#%d#", "primary": true}`, vm.mac, vm.n, vm.owner, vm.network))
	}
	return append(texts,
		`create vm {"uuid": "#27#", "owner_uuid": "#1#", "state": "stopped"}`,
		`create nic {"mac": "02:00:00:00:00:27", "belongs_to_type": "zone", "belongs_to_uuid": "#27#", "owner_uuid": "#1#", "network_uuid": "#32#"}`,
		`create nic {"mac": "02:00:00:00:00:29", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "network_uuid": "#32#"}`,
		`create nic {"mac": "02:00:00:00:00:31", "belongs_to_type": "zone", "belongs_to_uuid": "#41#", "owner_uuid": "#2#", "network_uuid": "#36#", "cn_uuid": "#12#"}`,
		`create nic {"mac": "02:00:00:00:00:32", "belongs_to_type": "zone", "belongs_to_uuid": "#42#", "owner_uuid": "#2#", "network_uuid": "#32#"}`,
		`create nic {"mac": "02:00:00:00:00:33", "belongs_to_type": "zone", "belongs_to_uuid": "#43#", "owner_uuid": "#1#", "network_uuid": "#34#", "cn_uuid": "#11#"}`,
		`update ip #34#:10.0.0.50 {"reserved": true, "owner_uuid": "#1#"}`,
		`update ip #32#:203.0.113.20 {"reserved": true, "belongs_to_type": "other", "belongs_to_uuid": "#3#", "owner_uuid": "#3#"}`,
		`create vmm {"id": "#51#", "instance_id": "#21#", "sled_id": "#11#", "state": "running", "gen": 1}`,
		`create vmm {"id": "#52#", "instance_id": "#22#", "sled_id": "#12#", "state": "running", "gen": 1}`,
		`create vmm {"id": "#53#", "instance_id": "#24#", "sled_id": "#12#", "state": "running", "gen": 1}`,
		`create vmm {"id": "#54#", "instance_id": "#22#", "sled_id": "#13#", "state": "migrating", "gen": 1}`,
		`create migration {"id": "#61#", "instance_id": "#22#", "source_propolis_id": "#52#", "source_state": "pending", "source_gen": 1}`,
		`create migration {"id": "#62#", "instance_id": "#24#", "source_propolis_id": "#53#", "source_state": "pending", "source_gen": 1}`,
		`create task {"id": "#71#", "task": "nop", "server_uuid": "#11#"}`,
		`create task {"id": "#72#", "task": "nop", "server_uuid": "#12#", "params": "{\"secret\": 1}"}`,
		`create task {"id": "#73#", "task": "machine_create", "server_uuid": "#11#", "params": "{\"uuid\": \"#44#\"}"}`,
		`create task {"id": "#74#", "task": "machine_create", "server_uuid": "#12#", "params": "{\"uuid\": \"#45#\"}"}`,
		`create aggregation {"name": "aggr0", "macs": ["02:00:00:00:00:02"]}`,
		`create router {"uuid": "#81#", "name": "b", "networks": ["#36#", "#37#"], "vm_uuid": "#26#"}`,
	)
}

// made is the world as records, made once: each history loads them anew.
var made = sync.OnceValue(func() []projections.Record {
	w := &world{state: projections.NewState()}
	for _, text := range base() {
		if _, refusal := w.decide(log.Author{}, []log.Op{changetest.Op(fatal{}, text)}); refusal != nil {
			panic(fmt.Sprint(text, ": ", refusal))
		}
	}
	var records []projections.Record
	for _, kind := range log.Kinds() {
		records = slices.AppendSeq(records, w.state.List(kind))
	}
	return records
})

// fatal is a changetest.Tester where there is no test yet.
type fatal struct{}

func (fatal) Helper()                         {}
func (fatal) Fatal(args ...any)               { panic(fmt.Sprint(args...)) }
func (fatal) Fatalf(form string, args ...any) { panic(fmt.Sprintf(form, args...)) }
func (fatal) Errorf(form string, args ...any) { panic(fmt.Sprintf(form, args...)) }

// world is the log's state in one history.
type world struct {
	state *projections.State
	seq   log.Seq
	made  uint64
}

func newWorld(t testing.TB, feature uint32) *world {
	w := &world{state: projections.NewState(), seq: 1000}
	for _, r := range made() {
		if err := w.state.Load(r); err != nil {
			t.Fatal(err)
		}
	}
	w.state.SetTime(baseTime)
	w.state.SetFeature(feature)
	return w
}

const baseTime log.Time = 1_700_000_000_000_000_000

func (w *world) change(by log.Author, ops []log.Op) *log.Change {
	c := &log.Change{ID: log.UUID{6: 0x70, 8: 0x80}, Actor: "test", By: by, Time: baseTime + log.Time(w.made), Seed: w.made, Ops: ops}
	binary.BigEndian.PutUint64(c.ID[8:], w.made|1<<63)
	return c
}

// weigh decides a change without applying it.
func (w *world) weigh(by log.Author, ops []log.Op) ([]*log.Event, *log.Refusal) {
	events, result := rules.Decide(w.state, w.change(by, ops))
	return events, result.Refusal
}

// decide decides a change, and applies what it comes to.
func (w *world) decide(by log.Author, ops []log.Op) ([]*log.Event, *log.Refusal) {
	w.made++
	events, refusal := w.weigh(by, ops)
	w.apply(events)
	return events, refusal
}

func (w *world) apply(events []*log.Event) {
	for _, e := range events {
		w.seq++
		if _, err := w.state.Apply(w.seq, e); err != nil {
			panic(err) // the rules made what the state does not take
		}
	}
}

func (w *world) object(kind log.Kind, id string) log.Object {
	if r, ok := w.state.Get(kind, id); ok {
		return r.Object
	}
	return nil
}

func (w *world) nic(m log.MAC) *log.NIC {
	n, _ := w.object(log.KindNIC, m.String()).(*log.NIC)
	return n
}

func (w *world) vm(u log.UUID) *log.VM {
	m, _ := w.object(log.KindVM, u.String()).(*log.VM)
	return m
}

func (w *world) vmm(u log.UUID) *log.VMM {
	m, _ := w.object(log.KindVMM, u.String()).(*log.VMM)
	return m
}

// sled is the CN of a VMM.
func (w *world) sled(vmm log.UUID) (cn log.UUID) {
	if m := w.vmm(vmm); m != nil {
		cn = m.SledID
	}
	return cn
}

// sideOf reports whether an object is a migration of a VM of which the liar has a VMM,
// which may have ended: its side is the liar's to tell.
func (w *world) sideOf(o log.Object) bool {
	m, ok := o.(*log.Migration)
	if !ok {
		return false
	}
	for r := range w.state.VMMsOf(m.InstanceID) {
		if r.Object.(*log.VMM).SledID == liar {
			return true
		}
	}
	return false
}

func address(text string) netip.Addr { return netip.MustParseAddr(text) }
