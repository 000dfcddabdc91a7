package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

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
		"seq=x": "seq", "scope=vnet:x": "scope", "scope=everybody": "scope", "timeout=soon": "timeout", "timeout=20m": "timeout", "colour=red": "colour",
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
