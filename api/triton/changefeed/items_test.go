package changefeed

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

const everything = `{"instance":"napi-tests","service":"napi-tests","resources":[
 {"resource":"network","subResources":["create","delete","gateway","resolvers","routes","mtu","name","owner_uuids","provision_start_ip"]},
 {"resource":"nic","subResources":["create","delete","allow_dhcp_spoofing","allow_ip_spoofing","allow_mac_spoofing","allow_restricted_traffic","allow_unfiltered_promisc","primary","state","ip","network_uuid","cn_uuid","modified_timestamp"]},
 {"resource":"nic_tag","subResources":["create","delete"]},
 {"resource":"aggregation","subResources":["create","delete","lacp_mode"]},
 {"resource":"ip","subResources":["create","delete","reserved"]}]}`

// The events that test/unit/changefeed.test.js of sdc-napi expects, and those
// that NAPI never published (spec/napi.md section 3.5).
func TestWhatIsPublished(t *testing.T) {
	store, all := newMemory(), objects{}
	_, address := served(t, Config{Store: store})
	w, _ := register(t, address, V2, everything)
	cn, owner := log.UUID{15: 1}, log.UUID{15: 2}
	tag := &log.NICTag{Name: "nic_tag", UUID: log.UUID{15: 3}, MTU: 1500}
	network := &log.Network{UUID: log.UUID{15: 4}, Name: "net", Subnet: netip.MustParsePrefix("10.0.0.0/24"), NICTag: "nic_tag", MTU: 1500}
	gateway := *network
	gateway.Gateway, gateway.MTU, gateway.OwnerUUIDs = netip.MustParseAddr("10.0.0.1"), 1400, []log.UUID{owner}
	nic := nicOf(0xab, "provisioning")
	stopped, moved := *nic, *nic
	stopped.AllowIPSpoofing, stopped.State, stopped.Modified = true, "stopped", nic.Modified+1
	moved = stopped
	moved.IP, moved.NetworkUUID, moved.Modified = netip.MustParseAddr("10.0.0.77"), network.UUID, stopped.Modified+1
	touched := moved
	touched.Modified++
	aggr := &log.Aggregation{BelongsToUUID: cn, Name: "aggr1", LACPMode: "off", MACs: []log.MAC{nic.MAC}}
	active := *aggr
	active.LACPMode = "active"
	ip := &log.IP{NetworkUUID: network.UUID, IP: netip.MustParseAddr("10.0.0.9"), Reserved: true}
	aggrID, mac := cn.String()+"-aggr1", "90:b8:d0:00:00:ab"
	for _, c := range []struct {
		event *log.Event
		want  string
	}{
		{all.put(tag), `nic_tag [create] nic_tag name=nic_tag etag="1-1"`},
		{all.put(network), `network [create] ` + network.ID() + ` uuid=` + network.ID() + ` etag="1-2"`},
		{all.put(&gateway), `network [gateway mtu owner_uuids] ` + network.ID() + ` uuid=` + network.ID() + ` etag="2-3"`},
		{all.put(nic), `nic [create] ` + mac + ` belongs_to_uuid=` + cn.String() + ` cn_uuid=` + cn.String() + ` mac=` + mac + ` etag="1-4"`},
		{all.put(&stopped), `nic [allow_ip_spoofing state] ` + mac + ` belongs_to_uuid=` + cn.String() + ` cn_uuid=` + cn.String() + ` mac=` + mac + ` etag="2-5"`},
		{all.put(&moved), `nic [ip network_uuid] ` + mac + ` belongs_to_uuid=` + cn.String() + ` cn_uuid=` + cn.String() + ` mac=` + mac + ` etag="3-6"`},
		{all.put(&touched), `nic [modified_timestamp] ` + mac + ` belongs_to_uuid=` + cn.String() + ` cn_uuid=` + cn.String() + ` mac=` + mac + ` etag="4-7"`},
		{all.put(aggr), `aggregation [create] ` + aggrID + ` belongs_to_uuid=` + cn.String() + ` name=aggr1 etag="1-8"`},
		{all.put(&active), `aggregation [lacp_mode] ` + aggrID + ` belongs_to_uuid=` + cn.String() + ` name=aggr1 etag="2-9"`},
		{all.remove(aggr), `aggregation [delete] ` + aggrID + ` belongs_to_uuid=` + cn.String() + ` name=aggr1`},
		{all.put(ip), `ip [create] ` + ip.ID() + ` ip=10.0.0.9 network_uuid=` + network.ID() + ` etag="1-11"`},
		{all.remove(nic), `nic [delete] ` + mac + ` belongs_to_uuid=` + cn.String() + ` cn_uuid=` + cn.String() + ` mac=` + mac},
		{all.remove(network), `network [delete] ` + network.ID() + ` uuid=` + network.ID()},
		{all.remove(tag), `nic_tag [delete] nic_tag name=nic_tag`},
	} {
		store.write(t, c.event)
		item := w.text()
		kind := item["changeKind"].(map[string]any)
		got := fmt.Sprint(kind["resource"], " ", kind["subResources"], " ", item["changedResourceId"])
		for _, extra := range []string{"belongs_to_uuid", "cn_uuid", "ip", "mac", "name", "network_uuid", "uuid", "etag"} {
			if item[extra] != nil {
				got += fmt.Sprint(" ", extra, "=", item[extra])
			}
		}
		if got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if published := fmt.Sprint(int64(store.time) / 1_000_000); item["published"] != published || item["seq"] != float64(store.Head().Seq) {
			t.Errorf("published %q, seq %v, want %q, %d", item["published"], item["seq"], published, store.Head().Seq)
		}
	}
}

// The form of an item: what old listeners know stands first.
func TestItemText(t *testing.T) {
	store, all := newMemory(), objects{}
	store.write(t, all.put(&log.NICTag{Name: "a", UUID: log.UUID{15: 3}, MTU: 1500}))
	it, err := newItem(store.cluster, store.entries[0], &stamps{last: make(map[string]int64)})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"changeKind":{"resource":"nic_tag","subResources":["create"]},"changedResourceId":"a","published":"1795251600124","name":"a","etag":"\"1-1\"","seq":1`
	for placed, want := range map[bool]string{false: want + "}", true: want + `,"cursor":"` + store.at(1).String() + `"}`} {
		if got, err := it.text(placed, nil); err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

// Of any history each listener gets exactly what its registration matches, each
// once, in the order of the log, whatever others ask for and however they come.
func TestEachItemOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		store, all := newMemory(), objects{}
		_, address := servedFor(t, rt, Config{Store: store})
		type member struct {
			*wire
			wants []interest
			from  log.Seq
		}
		var members []member
		steps := rapid.IntRange(5, 40).Draw(rt, "steps")
		for range steps {
			if len(members) < 5 && rapid.IntRange(0, 4).Draw(rt, "join") == 0 {
				wants := drawWants(rt)
				r := registration{Instance: fmt.Sprint("i", len(members)), wants: wants}
				w, first := register(t, address, V2, printed(&r))
				members = append(members, member{w, wants, log.Seq(first["seq"].(float64))})
			}
			store.write(rt, drawEvents(rt, all)...)
		}
		for i, m := range members {
			for _, e := range store.entries[m.from:] {
				want, err := newItem(store.cluster, e, &stamps{last: make(map[string]int64)})
				if err != nil {
					rt.Fatal(err)
				}
				if !slices.ContainsFunc(m.wants, func(n interest) bool { return n.wants(want) }) {
					continue
				}
				item := m.text()
				if item["seq"] != float64(want.cursor.Seq) {
					rt.Fatalf("listener %d gets %v, want seq %d", i, item, want.cursor.Seq)
				}
			}
			m.conn.Close()
		}
	})
}

func printed(r *registration) string {
	var wants []string
	for _, n := range r.wants {
		wants = append(wants, fmt.Sprintf(`{"resource":%q,"subResources":["%s"]}`, n.Resource, strings.Join(n.SubResources, `","`)))
	}
	return fmt.Sprintf(`{"instance":%q,"resources":[%s]}`, r.Instance, strings.Join(wants, ","))
}

func drawWants(t *rapid.T) (wants []interest) {
	names := []string{"nic", "nic_tag", "vm"}
	for range rapid.IntRange(1, 3).Draw(t, "wants") {
		n := interest{Resource: rapid.SampledFrom(names).Draw(t, "resource")}
		n.SubResources = rapid.SliceOfN(rapid.SampledFrom([]string{"create", "delete", "state", "ip", "mtu", "allow_ip_spoofing", "alias"}), 1, 4).Draw(t, "subs")
		wants = append(wants, n)
	}
	return wants
}

// drawEvents draws a change of one to three events, of objects that listeners may want, or not.
func drawEvents(t *rapid.T, all objects) (events []*log.Event) {
	for range rapid.IntRange(1, 3).Draw(t, "events") {
		n := byte(rapid.IntRange(1, 4).Draw(t, "id"))
		var o log.Object
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			nic := nicOf(n, rapid.SampledFrom([]string{"running", "stopped"}).Draw(t, "state"))
			nic.AllowIPSpoofing = rapid.Bool().Draw(t, "spoof")
			nic.IP = netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(1, 3).Draw(t, "ip"))})
			o = nic
		case 1:
			o = &log.NICTag{Name: fmt.Sprint("tag", n), MTU: uint32(rapid.IntRange(1500, 1502).Draw(t, "mtu"))}
		case 2:
			o = &log.VM{UUID: log.UUID{n}, Alias: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "alias")}
		default:
			o = &log.VMM{UUID: log.UUID{n}, State: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "vmm")}
		}
		if all[fmt.Sprint(o.Kind(), " ", o.ID())] != nil && rapid.IntRange(0, 4).Draw(t, "delete") == 0 {
			events = append(events, all.remove(o))
			continue
		}
		events = append(events, all.put(o))
	}
	return events
}

// FuzzRegistration: whatever comes is refused with a reason that fits a close, or
// taken and answered.
func FuzzRegistration(f *testing.F) {
	for _, seed := range []string{nicAndTags, everything, `{"instance":"a","changeKind":{"resource":"nic","subResources":["ip"]},"cursor":""}`, `[`, `{"instance":"a","resources":[{"resource":"nic","subResources":null}]}`} {
		f.Add(1, []byte(seed))
		f.Add(2, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, version int, data []byte) {
		r, err := parseRegistration(Version(version&1+1), data)
		if err != nil {
			if refused, ok := err.(*reject); !ok || refused.reason == "" || len(refused.reason) > maxReason {
				t.Errorf("refused with %v", err)
			}
			return
		}
		if len(r.wants) == 0 {
			t.Error("taken without a resource")
		}
		if _, err := r.reply(log.Cursor{}, false, ""); err != nil {
			t.Errorf("the reply: %v", err)
		}
	})
}
