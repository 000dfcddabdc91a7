package gateway

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"rutter/log"
)

// TestBelowProperties: in a cluster of before properties the gateway writes the fields that
// the log has, and refuses and fails nothing: a creation, a PUT, and a sweep that is quiet
// the second time.
func TestBelowProperties(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	b.store.SetFeature(log.FeatureTriton - 1)
	made := object(freshVM, oldCN, "provisioning", "", `"tags":{"a":"b"},"role_tags":["r"]`)
	b.answerWith(old(map[string]string{freshVM: made}))
	if got := b.ask("POST", "/vms", `{"owner_uuid":"`+owner+`"}`); got.status != 202 {
		t.Errorf("a creation: %d %s", got.status, got.body)
	}
	if vm := b.vm(freshVM); vm == nil || vm.State != "provisioning" || vm.Properties != "" {
		t.Errorf("a creation: %+v", vm)
	}
	put := object(oldVM, oldCN, "stopped", "2026-01-02T00:00:00.000Z", `"tags":{"a":"b"},"role_tags":["r"]`)
	if got := b.ask("PUT", "/vms/"+oldVM, put); got.status != 200 {
		t.Errorf("a PUT: %d %s", got.status, got.body)
	}
	if vm := b.vm(oldVM); vm.State != "stopped" || vm.Properties != "" {
		t.Errorf("a PUT: %+v", vm)
	}
	if got := b.ask("POST", "/vms/"+freshVM+"/role_tags", `{"role_tags":["r"]}`); got.status != 200 {
		t.Errorf("role tags: %d %s", got.status, got.body)
	}
	b.listing(made, put)
	for range 2 {
		head := b.store.Head().Seq
		if err := b.g.sweep(t.Context()); err != nil || b.store.Head().Seq != head {
			t.Errorf("a sweep wrote what the log has: %v", err)
		}
	}
}

// lagging is the store of a server that does not have yet what the leader has: what it
// makes of its own state is refused for a while.
type lagging struct {
	Store
	first sync.Once
	until time.Time
}

func (l *lagging) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	l.first.Do(func() { l.until = time.Now().Add(50 * time.Millisecond) })
	if time.Now().Before(l.until) {
		return log.Result{ChangeID: c.ID, Refusal: &log.Refusal{Code: log.CodePreconditionFailed, Message: "out of date"}}, nil
	}
	return l.Store.Propose(ctx, c)
}

// TestPutBehindTheLeader: a PUT at a server that is behind the leader for a moment is tried
// again until it is not.
func TestPutBehindTheLeader(t *testing.T) {
	b := newBed(t, VMAPI, func(c *Config) { c.Store = &lagging{Store: c.Store} })
	if got := b.ask("PUT", "/vms/"+oldVM, object(oldVM, oldCN, "stopped", "2031-01-02T00:00:00.000Z")); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if vm := b.vm(oldVM); vm.State != "stopped" {
		t.Errorf("the log: %+v", vm)
	}
}

// TestPutRefused: what the old VMAPI refuses is not in the log either; and a node does not
// take a VM that is another's.
func TestPutRefused(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	b.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"code":"ValidationFailed"}`)
	})
	if got := b.ask("PUT", "/vms/"+oldVM, object(oldVM, oldCN, "stopped", "2031-01-02T00:00:00.000Z")); got.status != 409 || got.code() != "ValidationFailed" {
		t.Errorf("refused: %d %s", got.status, got.body)
	}
	b.answerWith(nil)
	b.ask("PUT", "/vms/"+oldVM, object(oldVM, freshVM, "stopped", "2031-01-02T00:00:00.000Z"))
	if vm := b.vm(oldVM); vm.State != "running" || vm.ServerUUID.String() != oldCN {
		t.Errorf("the log: %+v", vm)
	}
}

// TestOlderRecord: a record of the old VMAPI that is older than what the log has of a VM
// changes nothing: neither one from before the last report, nor one that was read before
// the log's VM changed, nor the provisioning record of a VM that runs.
func TestOlderRecord(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	for _, c := range []struct {
		text  string
		since bool // it was read before the last change
		err   error
	}{
		{object(oldVM, oldCN, "stopped", "2019-01-01T00:00:00.000Z"), false, nil},
		{object(oldVM, oldCN, "provisioning", "2031-01-01T00:00:00.000Z"), false, nil},
		{object(oldVM, oldCN, "stopped", "2031-01-01T00:00:00.000Z"), true, errPassed},
	} {
		one, err := b.g.take([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if one.asOf = b.store.Head().Seq; c.since {
			one.asOf = 0
		}
		if err := b.g.intake(t.Context(), one, fromVMAPI); err != c.err {
			t.Errorf("%s: %v", c.text, err)
		}
		if vm := b.vm(oldVM); vm.State != "running" {
			t.Errorf("%s is in the log: %+v", c.text, vm)
		}
	}
}
