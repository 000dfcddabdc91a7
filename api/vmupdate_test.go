package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestUpdateOfVM: a VM that is being made is nobody's to change, and how it is may
// be said all the same; which NIC is primary is the node's to write down.
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
