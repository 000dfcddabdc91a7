package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

// listing answers GET /vms with objects, and notes what is put.
func (b *bed) listing(objects ...string) (puts func() map[string]map[string]any) {
	b.answerWith(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" && r.URL.Path == "/vms" {
			_, _ = io.WriteString(w, "["+strings.Join(objects, ",")+"]")
			return
		}
		old(nil)(w, r)
	})
	return func() map[string]map[string]any {
		b.mu.Lock()
		defer b.mu.Unlock()
		all := make(map[string]map[string]any)
		for _, r := range b.got {
			if r.method == "PUT" {
				var form map[string]any
				if err := json.Unmarshal([]byte(r.body), &form); err != nil {
					b.t.Error(err)
				}
				all[strings.TrimPrefix(r.uri, "/vms/")] = form
			}
		}
		return all
	}
}

// round is one comparison of an outflow.
func (o *outflow) round(t *testing.T) {
	t.Helper()
	sent, err := o.compare(t.Context())
	if err == nil {
		err = o.send(t.Context(), sent)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNeverInTheLog: a VM of a node with Rutter's agent that the log never had, because the
// agent has not reported it yet or the log refuses it, is not destroyed in the old VMAPI.
// One that went while another server led is.
func TestNeverInTheLog(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	puts := b.listing(object(freshVM, newCN, "running", "2026-01-01T00:00:00.000Z"), object(newVM, newCN, "running", "2026-01-01T00:00:00.000Z"))
	o := newOutflow(b.g)
	o.note(o.of(), time.Now()) // as watch does on each server
	b.propose(log.Op{Action: log.Delete, Kind: log.KindVM, ID: newVM})
	o.round(t)
	got := puts()
	if form, put := got[freshVM]; put {
		t.Errorf("a VM that the log never had: %v", form["state"])
	}
	if got[newVM]["state"] != "destroyed" {
		t.Errorf("a VM that is gone: %v", got[newVM])
	}
	o.note(nil, time.Now().Add(2*seenFor))
	if len(o.seen) != 0 {
		t.Errorf("%d VMs are remembered without end", len(o.seen))
	}
}

// TestKeepsTheirs: what the log cannot have of a VM, because the cluster is of before
// properties or because it is too large, stays in the old VMAPI when the VM is put.
func TestKeepsTheirs(t *testing.T) {
	theirs := object(newVM, newCN, "running", "2026-01-01T00:00:00.000Z",
		`"tags":{"a":1},"customer_metadata":{"user-script":"long","k":"old"},"billing_id":"`+owner+`","snapshots":[{"name":"s"}]`)
	for _, feature := range []uint32{log.FeatureTriton - 1, log.FeatureTriton} {
		b := newBed(t, VMAPI, nil)
		b.store.SetFeature(feature)
		update := &log.VM{State: "stopped", Properties: `{"customer_metadata":{"k":"new"},"rutter_left_out":["customer_metadata.user-script","snapshots"]}`}
		set := []string{"properties", "state"}
		if feature < log.FeatureTriton {
			set, update.Properties = set[1:], ""
		}
		b.propose(log.Op{Action: log.Update, Kind: log.KindVM, ID: newVM, Set: set, Object: update})
		puts := b.listing(theirs)
		o := newOutflow(b.g)
		o.round(t)
		form := puts()[newVM]
		metadata, _ := form["customer_metadata"].(map[string]any)
		tags, _ := form["tags"].(map[string]any)
		list, _ := form["snapshots"].([]any)
		if form["state"] != "stopped" || metadata["user-script"] != "long" || len(list) != 1 {
			t.Errorf("feature %d: %v", feature, form)
		}
		want := map[bool]string{true: "old", false: "new"}[feature < log.FeatureTriton]
		if metadata["k"] != want || (len(tags) == 1) != (feature < log.FeatureTriton) {
			t.Errorf("feature %d: metadata %v, tags %v", feature, metadata, tags)
		}
	}
}
