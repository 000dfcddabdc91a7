package integration

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/integration/rig"
	"rutter/log"
	"rutter/varp"
)

// newsNICs are those of the vnet of the client of TestShootdownsOverRestarts: 25 batches
// of an illumos client.
const newsNICs = 300

// newsWay is three servers and a client of the shootdown log.
type newsWay struct {
	c       *cluster
	me      netip.Addr
	clients []*varp.Client // of each server
	cns     [2]log.UUID
	nics    []string
}

// TestShootdownsOverRestarts: a client that acknowledged everything gets nothing again
// from a server that it never asked; after its server was restarted, only what it
// acknowledged to others since that server's last file; and everything once after that
// lost its file in a crash. Then of a move it gets that and nothing else in its next
// answer.
func TestShootdownsOverRestarts(t *testing.T) {
	t.Parallel()
	w := newNewsWay(t)
	first := w.c.Servers[0]
	for told := 0; ; {
		records := w.poll(t, 0)
		if told += len(records); len(records) == 0 {
			if told < 2*newsNICs {
				t.Fatalf("told of %d mappings at first, want at least %d", told, 2*newsNICs)
			}
			break
		}
		w.acknowledge(t, 0, records)
	}
	w.has(t, 1, "a server that it never asked", 0)
	w.moves(t, 1, 7)

	// The third has heard of the first's answers too before that is started again: afterwards the
	// first does not know when it told what, and others cannot rely on it (package varp, Sharing).
	// They ask each half second. To ask the third would change what it must tell.
	time.Sleep(3 * time.Second)
	w.c.signal(first, syscall.SIGTERM)
	w.c.start(first)
	w.c.waitReady(first)
	w.has(t, 0, "its server after a restart", 0)
	w.moves(t, 0, 8)

	for other := 1; other <= 2; other++ {
		w.has(t, other, "another server, before the crash", 0)
	}
	w.c.signal(first, syscall.SIGKILL)
	if err := os.Remove(filepath.Join(w.c.dir, first.ID, "svp-places")); err != nil {
		t.Fatal(err)
	}
	w.c.start(first)
	w.c.waitReady(first)
	w.has(t, 0, "its server after it lost the file", 0)
	w.moves(t, 0, 9)

	for _, s := range w.c.Servers {
		w.c.signal(s, syscall.SIGTERM)
	}
	for _, s := range w.c.Servers {
		w.c.start(s)
	}
	for _, s := range w.c.Servers {
		w.c.waitReady(s)
	}
	w.has(t, 2, "a server after all were restarted", 2)
	w.moves(t, 2, 10)
}

func newNewsWay(t *testing.T) *newsWay {
	port := rig.Ports(t, 1)[0]
	w := &newsWay{c: startClusterAt(t, "127.0.0.1", "--svp", fmt.Sprintf("127.0.0.{n}:%d", port)), me: netip.MustParseAddr("192.0.2.1")}
	for n := range w.c.Servers {
		c, err := varp.NewClient(varp.ClientConfig{Servers: []string{fmt.Sprintf("127.0.0.%d:%d", n+1, port)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		w.clients = append(w.clients, c)
	}
	create := func(set string, o log.Object) log.Op {
		return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
	}
	under, fabric, owner := client.NewChangeID(), client.NewChangeID(), client.NewChangeID()
	ops := []log.Op{
		create("mtu name", &log.NICTag{Name: "u", MTU: 1600}),
		create("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid", &log.Network{UUID: under, Name: "u", NICTag: "u", MTU: 1600, Subnet: netip.MustParsePrefix("192.0.2.0/24"), ProvisionStart: netip.MustParseAddr("192.0.2.1"), ProvisionEnd: netip.MustParseAddr("192.0.2.250")}),
		create("fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet uuid vnet_id", &log.Network{
			UUID: fabric, Name: "f", NICTag: "u", Fabric: true, VNetID: 100, MTU: 1400, OwnerUUIDs: []log.UUID{owner},
			Subnet: netip.MustParsePrefix("10.0.0.0/16"), ProvisionStart: netip.MustParseAddr("10.0.1.0"), ProvisionEnd: netip.MustParseAddr("10.0.200.0"),
		}),
	}
	var vms [2]log.UUID
	for i := range w.cns {
		w.cns[i], vms[i] = client.NewChangeID(), client.NewChangeID()
		ops = append(ops,
			create("hostname uuid", &log.Server{UUID: w.cns[i], Hostname: fmt.Sprintf("cn%d", i)}),
			create("belongs_to_type belongs_to_uuid cn_uuid ip network_uuid owner_uuid underlay", &log.NIC{BelongsToType: "server", BelongsToUUID: w.cns[i], CNUUID: w.cns[i], OwnerUUID: owner, NetworkUUID: under, Underlay: true, IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)})}),
			create("owner_uuid server_uuid uuid", &log.VM{UUID: vms[i], OwnerUUID: owner, ServerUUID: w.cns[i]}))
	}
	nic := func(cn int) log.Op {
		return create("belongs_to_type belongs_to_uuid cn_uuid network_uuid owner_uuid", &log.NIC{BelongsToType: "zone", BelongsToUUID: vms[cn], CNUUID: w.cns[cn], OwnerUUID: owner, NetworkUUID: fabric})
	}
	ops = append(ops, nic(0))
	if _, err := w.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
		t.Fatal(err)
	}
	for range newsNICs / 50 {
		var batch []log.Op
		for range 50 {
			batch = append(batch, nic(1))
		}
		result, err := w.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: batch})
		if err != nil {
			t.Fatal(err)
		}
		w.nics = append(w.nics, result.IDs...)
	}
	w.c.level()
	return w
}

func (w *newsWay) poll(t *testing.T, server int) []varp.Record {
	t.Helper()
	records, err := w.clients[server].LogRequest(t.Context(), w.me, 1024)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func (w *newsWay) acknowledge(t *testing.T, server int, records []varp.Record) {
	t.Helper()
	ids := make([]log.UUID, len(records))
	for i, r := range records {
		ids[i] = r.ID
	}
	if err := w.clients[server].LogRemove(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
}

// has waits until a server gives the client nothing. The client acknowledges nothing
// there meanwhile, so the server can know it from elsewhere only. It acknowledges what
// the servers in at give it.
func (w *newsWay) has(t *testing.T, server int, what string, at ...int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		records := w.poll(t, server)
		if len(records) == 0 {
			return
		}
		for _, own := range at {
			w.acknowledge(t, own, w.poll(t, own))
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s gives %d records again and again", what, len(records))
		}
	}
}

// moves moves a NIC, and waits until the client hears of it, and of nothing else.
func (w *newsWay) moves(t *testing.T, server, nic int) {
	t.Helper()
	_, err := w.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{
		{Action: log.Update, Kind: log.KindNIC, ID: w.nics[nic], Set: []string{"cn_uuid"}, Object: &log.NIC{CNUUID: w.cns[0]}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	mac, err := log.ParseMAC(w.nics[nic])
	if err != nil {
		t.Fatal(err)
	}
	w.c.level()
	records := w.poll(t, server)
	if len(records) == 0 || len(records) > 2 || records[0].MAC != mac && records[len(records)-1].MAC != mac {
		t.Errorf("told %+v of the move of %s", records, mac)
	}
	w.acknowledge(t, server, records)
}
