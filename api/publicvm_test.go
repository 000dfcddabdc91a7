package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"rutter/api/auth/matrix"
	"rutter/log"
)

// TestTenantsSeeNoInternalMetadata: a reader of one tenant gets its VMs without
// internal_metadata on each way on which it gets VMs, in old values too; other readers get it. The other ways are closed to it.
func TestTenantsSeeNoInternalMetadata(t *testing.T) {
	const secret, mine = "root-password", "my-tag"
	store := newMemory()
	server, err := New(Config{Store: store, Identify: byHeader, Past: folded{store}})
	if err != nil {
		t.Fatal(err)
	}
	b := bedWith(t, store, server)
	b.furnishTwo()
	b.must("PUT", "/grants/reader:test", `{"owner_uuids":["`+readerOwner+`"]}`)
	for i := range 2 { // the second has the first as its old value
		text := fmt.Sprintf(`{"internal_metadata":{"k":"%s%d"},"tags":{"k":"%s%d"}}`, secret, i, mine, i)
		op := log.Op{Action: log.Update, Kind: log.KindVM, ID: readerVM, Set: []string{"properties"}, Object: &log.VM{Properties: text}}
		if result, err := store.Propose(t.Context(), &log.Change{ID: log.UUID{0xee, 6: 0x70, 8: 0x80, 15: byte(i)}, Ops: []log.Op{op}}); err != nil || result.Refusal != nil {
			t.Fatal(err, result.Refusal)
		}
	}
	head := b.Store.Head().Seq
	lines := fmt.Sprintf("&limit=%d", head)
	for _, path := range []string{
		"/vms", "/vms?uuid=" + readerVM, "/vms/" + readerVM, "/log?kind=vm", "/log?last=100", "/log?object=" + readerVM + "&kind=vm",
		"/log?owner=" + readerOwner + "&kind=vm" + lines, "/log?kind=vm&object=" + readerVM + "&follow=true&limit=4",
	} {
		for _, who := range []string{"operator", "reader", "operator"} { // a follower's lines are shared
			w := b.call("GET", path, "", asHeader, who)
			text := w.Body.String()
			if w.Code != http.StatusOK || !strings.Contains(text, mine) || strings.Contains(text, secret) != (who == "operator") {
				t.Errorf("%s of %s: %d %s", path, who, w.Code, text)
			}
		}
	}
	for _, path := range []string{
		"/log/state?kind=vm", "/log/history?kind=vm&object=" + readerVM, fmt.Sprintf("/log/diff?from=1&to=%d", head), "/snapshot", "/vms/lookup?text=x",
		fmt.Sprintf("/vms/%s?at=%d", readerVM, head), fmt.Sprintf("/vms?owner_uuid=%s&at=%d", readerOwner, head), "/vms/" + readerVM + "/history",
	} {
		if w := b.call("GET", path, "", asHeader, "reader"); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), secret) {
			t.Errorf("%s: %d %s, want it refused", path, w.Code, w.Body)
		}
	}
	if w := b.call("GET", "/log", "", asHeader, "reader", "Accept", "application/x-rutter-log"); strings.Contains(w.Body.String(), secret) {
		t.Errorf("the binary log: %d %q", w.Code, w.Body)
	}
	tenant := matrix.Identity{Role: matrix.Reader, Owners: []log.UUID{{1}}}
	for _, what := range []string{"changefeeds GET /changefeeds", "vmapi GET /changefeeds", "vmapi GET /vms", "vmapi GET /vms/{uuid}", "vmapi GET /vms/{uuid}/internal_metadata", "vmapi GET /jobs", "cnapi GET /tasks", "GET /feed"} {
		if row := matrix.Find(what); row == nil || row.For(tenant) != matrix.Deny {
			t.Errorf("%s is open to a tenant's reader, and strips nothing", what)
		}
	}
}

// TestStateOfOwnVMs: of a compute node that is not taken for running, others get the state
// unknown of its VMs; itself what it reported, so that a command on a node that has just
// joined need not wait until the log takes the node for running.
func TestStateOfOwnVMs(t *testing.T) {
	b := bedOf(t, Config{Identify: byHeader})
	here, far, vm := testUUID(7), testUUID(8), testUUID(21)
	for i, cn := range []log.UUID{here, far} {
		b.must("POST", "/servers", fmt.Sprintf(`{"uuid":"%s","hostname":"cn%d"}`, cn, i))
	}
	b.must("POST", "/vms", fmt.Sprintf(`{"uuid":"%s","owner_uuid":"%s","state":"running","server_uuid":"%s"}`, vm, testUUID(9), here))
	for who, want := range map[string]string{here.String(): `"state":"running"`, "operator": `"state":"unknown"`, far.String(): "ResourceNotFound"} {
		if w := b.call("GET", "/vms/"+vm.String(), "", asHeader, who); !strings.Contains(w.Body.String(), want) {
			t.Errorf("to %s: %d %s, want %s", who, w.Code, w.Body, want)
		}
	}
}
