package rules

import (
	"fmt"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/internal/worldtest"
)

// list writes n texts made by format as JSON.
func list(n int, format string) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(texts, ",")
}

// TestBounds: each bound holds at its value and refuses one more.
func TestBounds(t *testing.T) {
	network := `create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/16", %s}`
	server := `create nic {"belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#", "nic_tags_provided": [%s]}`
	cases := []struct {
		what  string
		bound int
		op    func(n int) string
	}{
		{"name", projections.MaxNameBytes, func(n int) string {
			return strings.Replace(fmt.Sprintf(network, `"mtu": 1500`), `"n"`, `"`+strings.Repeat("n", n)+`"`, 1)
		}},
		{"description", maxDescription, func(n int) string { return fmt.Sprintf(network, `"description": "`+strings.Repeat("d", n)+`"`) }},
		{"resolvers", maxResolvers, func(n int) string { return fmt.Sprintf(network, `"resolvers": [`+list(n, `"10.1.0.%d"`)+`]`) }},
		{"routes", maxRoutes, func(n int) string {
			return fmt.Sprintf(network, `"routes": {`+list(n, `"10.2.%d.0/30": "10.1.0.1"`)+`}`)
		}},
		{"owner_uuids", maxOwners, func(n int) string {
			return fmt.Sprintf(network, `"owner_uuids": [`+list(n, `"00000000-0000-0000-0000-%012d"`)+`]`)
		}},
		{"nic_tags_provided", maxTagsOnOne, func(n int) string { return fmt.Sprintf(server, list(n, `"tag%d"`)) }},
	}
	for _, c := range cases {
		w := worldtest.Settled(t, Decide)
		for i := range maxTagsOnOne + 1 {
			w.Must(fmt.Sprintf(`create nic_tag {"name": "tag%d"}`, i))
		}
		// 256 routes do not fit one octet; past it the text is no subnet, which is refused as well.
		if r := w.Try(w.Change(changetest.Op(t, c.op(c.bound+1)))).Refusal; r == nil || !strings.Contains(r.Error(), c.what+": ") {
			t.Errorf("%s: %d were not refused: %v", c.what, c.bound+1, r)
		}
		w.Must(c.op(c.bound))
	}
}

func TestUsersAreNamedUpToABound(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	nic := `create nic {"belongs_to_type": "other", "belongs_to_uuid": "#60#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#31#"}`
	for range maxUsedBy {
		w.Must(nic)
	}
	r := w.Try(w.Change(changetest.Op(t, `delete network #31#`))).Refusal
	if r == nil || len(r.Errors) != maxUsedBy || !strings.Contains(r.Message, "the first users are named") {
		t.Fatalf("got %v", r)
	}
	if e := r.Errors[0]; e.Code != log.ElementUsedBy || e.Type != "nic" || e.ID != "00:00:00:00:02:00" {
		t.Errorf("the first user is %+v", e)
	}
}

// TestDrawsRunOut: where every draw is taken, the client is told to choose.
func TestDrawsRunOut(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	c := w.Change(changetest.Op(t, `create nic {`+zoneNIC+`}`))
	d := newDraft(w.State, c, &byKind)
	for try := range uint64(maxDraws) {
		sum := d.draw("mac", c.Seed, try)
		mac := log.MAC{macPrefix[0], macPrefix[1], macPrefix[2], sum[0], sum[1], sum[2]}
		if err := w.State.Load(projections.Record{Object: &log.NIC{MAC: mac}, Revision: 1, Seq: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if r := w.Try(c).Refusal; r == nil || !strings.Contains(r.Error(), "mac: no free MAC was found in 256 tries (choose one)") {
		t.Errorf("got %v", r)
	}
	c = w.Change(changetest.Op(t, `create network {"name": "n", "nic_tag": "overlay", "subnet": "10.7.0.0/24", "fabric": true, "owner_uuids": ["#3#"]}`))
	d = newDraft(w.State, c, &byKind)
	for try := range uint64(maxDraws) {
		sum := d.draw("vnet", c.Seed, try)
		vnet := uint32(sum[0])<<16 | uint32(sum[1])<<8 | uint32(sum[2])
		n := &log.Network{UUID: changetest.UUID(1000 + try), Fabric: true, VNetID: vnet, OwnerUUIDs: []log.UUID{changetest.UUID(4)}}
		if err := w.State.Load(projections.Record{Object: n, Revision: 1, Seq: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if r := w.Try(c).Refusal; r == nil || !strings.Contains(r.Error(), "vnet_id: no free vnet was found in 256 tries (choose one)") {
		t.Errorf("got %v", r)
	}
}
