package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"rutter/api/internal/rest"
)

// TestUpdateOfVM: a VM that is being made cannot be changed, but its state may be
// reported. The node writes down which NIC is primary.
func TestUpdateOfVM(t *testing.T) {
	b := newBed(t)
	b.furnish()
	path := "/vms/" + fabricB.String() // any UUID
	b.must("POST", "/vms", fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q,"server_uuid":%q,"state":"provisioning"}`, fabricB, ownerA, cn1))
	nic := b.must("POST", "/networks/"+fabricA.String()+"/nics", fmt.Sprintf(`{"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q}`, fabricB, ownerA, cn1))
	primary := fmt.Sprintf(`{"update_nics":[{"mac":%q,"primary":true}]}`, nic["mac"])
	before := b.store.Head().Seq
	for _, method := range []string{"PUT", "POST"} {
		for _, body := range []string{primary, `{"alias":"a"}`, `{"quota":9,"state":"running"}`} {
			if w := b.call(method, path, body); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "UnallocatedVM") {
				t.Errorf("%s of %s while it is made: %d %s", method, body, w.Code, w.Body)
			}
		}
	}
	if head := b.store.Head().Seq; head != before {
		t.Errorf("the log went from %d to %d", before, head)
	}
	b.must("PUT", path, `{"state":"running","zone_state":"running"}`)
	b.must("PUT", path, `{"alias":"a"}`)
	b.must("PUT", path, primary)
	if got := b.must("GET", "/nics/"+fmt.Sprint(nic["mac"]), ""); got["primary"] != true {
		t.Errorf("the NIC: %v", got)
	}
	if w := b.call("GET", "/log?kind=task", ""); strings.Count(w.Body.String(), "machine_update") == 0 || !strings.Contains(w.Body.String(), "update_nics") {
		t.Errorf("the node is told nothing of it: %s", w.Body)
	}
}

// Whatever a compute node sends to another's VM, in whatever state that is, it hears
// what it hears of a VM that there is not: neither that there is one, nor of its NICs
// and their networks.
func TestUpdateOfAnothersVM(t *testing.T) {
	b := bedOf(t, Config{Identify: byHeader})
	b.furnish()
	theirs, nobodys := testUUID(0x77).String(), testUUID(0x78).String()
	b.must("POST", "/vms", fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q,"server_uuid":%q,"state":"provisioning"}`, theirs, ownerA, cn1))
	mac := b.nic(fabricA, cn1)
	before := b.store.Head().Seq
	for _, state := range []string{"provisioning", "running"} {
		for _, body := range []string{
			`{"alias":"a"}`, `{"state":"stopped"}`, `{"gateway":"10.0.0.9"}`, `{"mtu":1400,"routes":{}}`,
			fmt.Sprintf(`{"update_nics":[{"mac":%q,"primary":true}]}`, mac), fmt.Sprintf(`{"update_nics":[{"mac":%q,"ip":"10.9.9.9"}]}`, mac),
			fmt.Sprintf(`{"update_nics":[{"mac":%q,"gateway":"10.0.0.9"}]}`, mac), `{"quota":`,
		} {
			for _, method := range []string{"PUT", "POST"} {
				is, not := b.call(method, "/vms/"+theirs, body, asHeader, cn2.String()), b.call(method, "/vms/"+nobodys, body, asHeader, cn2.String())
				if got, want := is.Body.String(), strings.ReplaceAll(not.Body.String(), nobodys, theirs); is.Code < 400 || is.Code != not.Code || got != want {
					t.Errorf("%s of %s to another's VM that is %s: %d %s\nand to none: %d %s", method, body, state, is.Code, got, not.Code, want)
				}
			}
		}
		if head := b.store.Head().Seq; head != before {
			t.Fatalf("the log went from %d to %d", before, head)
		}
		b.must("PUT", "/vms/"+theirs, `{"state":"running"}`)
		before = b.store.Head().Seq
	}
}

// A request that names its change, and is sent again when what there is has changed
// by it, is the same change: it gets what it got first. With another body the id is
// another change's.
func TestUpdateOfVMAgain(t *testing.T) {
	b := newBed(t)
	b.furnish()
	path := "/vms/" + fabricB.String() // any UUID
	b.must("POST", "/vms", fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q,"server_uuid":%q,"state":"running","zone_state":"running"}`, fabricB, ownerA, cn1))
	nic := b.must("POST", "/networks/"+fabricA.String()+"/nics", fmt.Sprintf(`{"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q}`, fabricB, ownerA, cn1))
	body := fmt.Sprintf(`{"update_nics":[{"mac":%q,"primary":true}], "alias": "a"}`, nic["mac"])
	id, err := rest.NewChangeID()
	if err != nil {
		t.Fatal(err)
	}
	first := b.call("PUT", path, body, rest.HeaderChangeID, id.String())
	if first.Code != http.StatusOK {
		t.Fatalf("%d %s", first.Code, first.Body)
	}
	b.must("PUT", path, fmt.Sprintf(`{"server_uuid":%q}`, cn2)) // a task of it would be for another node now
	head := b.store.Head().Seq
	again := b.call("PUT", path, strings.Replace(body, `"alias": "a"`, `"alias":"a"`, 1), rest.HeaderChangeID, id.String())
	if again.Code != http.StatusOK || b.store.Head().Seq != head {
		t.Errorf("again: %d %s, and the log went from %d to %d", again.Code, again.Body, head, b.store.Head().Seq)
	}
	if other := b.call("PUT", path, `{"alias":"b"}`, rest.HeaderChangeID, id.String()); other.Code != http.StatusConflict || !strings.Contains(other.Body.String(), "ChangeIDReused") {
		t.Errorf("another body: %d %s", other.Code, other.Body)
	}
}
