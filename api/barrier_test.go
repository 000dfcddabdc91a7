package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rutter/api/internal/apitest"
	"rutter/api/internal/nodes"
	"rutter/api/liveness"
	"rutter/log"
)

// askedFabric keeps what barriers ask for, and says that all is done.
type askedFabric struct {
	nodes.Fabric
	asked []liveness.Query
}

func (f *askedFabric) Wait(_ context.Context, q liveness.Query) (liveness.Verdict, error) {
	f.asked = append(f.asked, q)
	return liveness.Verdict{Done: true, Seq: q.Seq}, nil
}

// last is what the last barrier asked for, as text.
func (f *askedFabric) last() string {
	if len(f.asked) == 0 {
		return "nothing"
	}
	q := f.asked[len(f.asked)-1]
	f.asked = nil
	scopes := make([]string, len(q.Scopes))
	for i, scope := range q.Scopes {
		scopes[i] = scope.String()
	}
	return fmt.Sprintf("%d: %s", q.Seq, strings.Join(scopes, " "))
}

// A barrier that names no scope is of the whole change that its seq is of, and of
// the last seq of that; the scope of one that names no seq either is all.
func TestBarrierOfAWholeChange(t *testing.T) {
	fabric := new(askedFabric)
	b := bedOf(t, Config{Fabric: fabric})
	b.furnish()
	first := b.store.Head().Seq + 1
	var ops []string
	for i, cn := range []log.UUID{cn1, cn2, cn3} {
		ops = append(ops, fmt.Sprintf(`{"action":"update","kind":"server","id":%q,"object":{"hostname":"other%d"}}`, cn, i))
	}
	b.must("POST", "/changes", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	b.must("POST", "/nic_tags", `{"name":"later"}`)
	scopes := []log.Scope{log.CNScope(cn1), log.CNScope(cn2), log.CNScope(cn3)}
	slices.SortFunc(scopes, log.Scope.Compare)
	whole := fmt.Sprintf("%d: %s %s %s", first+2, scopes[0], scopes[1], scopes[2])
	for query, want := range map[string]string{
		fmt.Sprintf("seq=%d", first):   whole,
		fmt.Sprintf("seq=%d", first+1): whole,
		fmt.Sprintf("seq=%d", first+2): whole,
		fmt.Sprintf("seq=%d", first+3): fmt.Sprintf("%d: all", first+3),
		"seq=1":                        "1: all",
		"":                             fmt.Sprintf("%d: all", first+3),
		fmt.Sprintf("seq=%d&scope=vnet:7", first):                      fmt.Sprintf("%d: vnet:7", first),
		fmt.Sprintf("seq=%d&scope=vnet:%s/net", first, ownerA):         fmt.Sprintf("%d: %s", first, log.VNetScope(apitest.VNetA)),
		fmt.Sprintf("seq=%d&scope=cn:other0,network:external", first):  fmt.Sprintf("%d: %s %s", first, log.CNScope(cn1), log.NetworkScope(apitest.External)),
		fmt.Sprintf("seq=%d&scope=vnet:7,%s", first, log.CNScope(cn1)): fmt.Sprintf("%d: vnet:7 %s", first, log.CNScope(cn1)),
	} {
		if w := b.call("GET", "/wait?"+query, ""); w.Code != 200 {
			t.Errorf("%q: %s", query, pretty(w))
		}
		if got := fabric.last(); got != want {
			t.Errorf("%q: asked for %s, want %s", query, got, want)
		}
	}
	b.store.Compact()
	if w := b.call("GET", fmt.Sprintf("/wait?seq=%d", first), ""); w.Code == 200 || !strings.Contains(w.Body.String(), "?scope=") {
		t.Errorf("of what is not kept: %s", pretty(w))
	}
	for query, want := range map[string]string{
		"seq=x": "seq", "scope=vnet:x": "scope", "scope=vnet:external": "scope", "scope=cn:x": "scope", "vm=x&scope=all": "vm", "scope=vnet:1,cn:" + strings.Repeat("other0,cn:", 16) + "other0": "16 names", "scope=everybody": "scope", "timeout=soon": "timeout", "timeout=20m": "timeout", "colour=red": "colour",
	} {
		if w := b.call("GET", "/wait?"+query, ""); w.Code != 422 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%q: %s", query, pretty(w))
		}
	}
}

// Who wants what is so already waits for it all the same: that another has written
// it does not mean that the kernels have it.
func TestBarrierOfNothingNew(t *testing.T) {
	fabric := new(askedFabric)
	b := bedOf(t, Config{Fabric: fabric})
	b.furnish()
	mac := b.nic(fabricA, cn1)
	head := b.store.Head().Seq
	want := fmt.Sprintf("%d: %s %s", head, log.CNScope(cn1), log.VNetScope(vnetA))
	scopes := []log.Scope{log.CNScope(cn1), log.VNetScope(vnetA)}
	if slices.SortFunc(scopes, log.Scope.Compare); scopes[0] != log.CNScope(cn1) {
		want = fmt.Sprintf("%d: %s %s", head, scopes[0], scopes[1])
	}
	b.must("POST", "/changes?wait=fabric", fmt.Sprintf(`{"ops":[{"action":"update","kind":"nic","id":%q,"object":{"cn_uuid":%q}}]}`, mac, cn1))
	if got := b.store.Head().Seq; got != head {
		t.Fatalf("the update wrote something: head %d, want %d", got, head)
	}
	if got := fabric.last(); got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	// One of two operations alters nothing: it is waited for with the other.
	b.must("POST", "/changes?wait=fabric", fmt.Sprintf(
		`{"ops":[{"action":"update","kind":"nic","id":%q,"object":{"cn_uuid":%q}},{"action":"update","kind":"server","id":%q,"object":{"hostname":"new"}}]}`, mac, cn1, cn2))
	if got := fabric.last(); !strings.Contains(got, log.VNetScope(vnetA).String()) || !strings.Contains(got, log.CNScope(cn2).String()) {
		t.Errorf("asked for %s", got)
	}
}

// TestConcernOfChanges: the barrier of a change is for the objects that the change
// concerns, also of those that were as requested already, and one that names its scopes
// for all on their vnets, or for one VM.
func TestConcernOfChanges(t *testing.T) {
	fabric := new(askedFabric)
	b := bedOf(t, Config{Fabric: fabric})
	b.furnish()
	mac := b.nic(fabricA, cn1)
	text := func() string {
		q := fabric.asked[len(fabric.asked)-1]
		fabric.asked = nil
		if q.Concern == nil {
			return "everything"
		}
		return fmt.Sprintf("vnets %v nics %v vms %v", q.Concern.VNets, q.Concern.NICs, q.Concern.VMs)
	}
	nic := b.must("GET", "/nics/"+mac, "")
	vm := nic["belongs_to_uuid"].(string)
	ofNIC := fmt.Sprintf("vnets [] nics [%s] vms [%s]", mac, vm)
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", "/nics/" + mac + "?wait=fabric", fmt.Sprintf(`{"cn_uuid":%q}`, cn2), ofNIC},
		{"PUT", "/nics/" + mac + "?wait=fabric", fmt.Sprintf(`{"cn_uuid":%q}`, cn2), ofNIC}, // it was so already
		{"PUT", "/networks/" + fabricA.String() + "?wait=fabric", `{"description":"x"}`, fmt.Sprintf("vnets [%d] nics [] vms []", vnetA)},
		{"PUT", "/servers/" + cn1.String() + "?wait=fabric", `{"hostname":"x"}`, "everything"},
		{"POST", "/nic_tags?wait=fabric", `{"name":"later"}`, "everything"},
		{"GET", "/wait", "", "everything"},
		{"GET", fmt.Sprintf("/wait?scope=vnet:%d", vnetA), "", fmt.Sprintf("vnets [%d] nics [] vms []", vnetA)},
		{"GET", "/wait?scope=cn:" + cn1.String(), "", "everything"},
		{"GET", fmt.Sprintf("/wait?scope=vnet:%d,cn:%s&vm=%s", vnetA, cn1, vm), "", fmt.Sprintf("vnets [] nics [] vms [%s]", vm)},
		{"DELETE", "/nics/" + mac + "?wait=fabric", "", ofNIC},
	} {
		if w := b.call(c.method, c.path, c.body); w.Code >= 300 {
			t.Fatalf("%s %s: %s", c.method, c.path, pretty(w))
		}
		if got := text(); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.method, c.path, got, c.want)
		}
	}
	for _, query := range []string{"vm=" + vm, "scope=vnet:7&vm=x"} {
		if w := b.call("GET", "/wait?"+query, ""); w.Code != 422 {
			t.Errorf("%s: %s", query, pretty(w))
		}
	}
}

// saidFabric gives one verdict.
type saidFabric struct {
	nodes.Fabric
	verdict liveness.Verdict
}

func (f *saidFabric) Wait(context.Context, liveness.Query) (liveness.Verdict, error) {
	return f.verdict, nil
}

// TestAnswersNameObjects: the answer of a write names what is missing on which node, and
// what is not there because its VM is not to run.
func TestAnswersNameObjects(t *testing.T) {
	cn := cn1
	absent := liveness.Waiting{Object: "fabric link of 02:00:00:00:00:01: its VM is not to run", Idle: true, CN: &cn}
	fabric := &saidFabric{verdict: liveness.Verdict{Done: true, CNs: 1, Absent: slices.Repeat([]liveness.Waiting{absent}, 20), AbsentTotal: 20}}
	b := bedOf(t, Config{Fabric: fabric})
	b.furnish()
	mac := b.nic(fabricA, cn1)
	w := b.call("PUT", "/nics/"+mac+"?wait=fabric", `{"cn_uuid":"`+cn2.String()+`"}`)
	said := w.Header().Values("Rutter-Fabric-Absent")
	if w.Code != 200 || !strings.Contains(w.Header().Get("Rutter-Fabric"), "; absent=20") || len(said) != 8 || said[0] != "CN "+cn.String()+": "+absent.Object {
		t.Errorf("%d, %q, %q", w.Code, w.Header().Get("Rutter-Fabric"), said)
	}
	fabric.verdict = liveness.Verdict{CNs: 2, Total: 1, Missing: []liveness.Laggard{{CN: cn, Reason: "its kernel lacks vxlan sdcvxl7: file exists"}}}
	w = b.call("PUT", "/nics/"+mac+"?wait=fabric", `{"cn_uuid":"`+cn1.String()+`"}`)
	if w.Code != 202 || !strings.Contains(w.Body.String(), "CN "+cn.String()+": its kernel lacks vxlan sdcvxl7") {
		t.Errorf("%d, %s", w.Code, pretty(w))
	}
}
