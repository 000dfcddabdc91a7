package napi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"rutter/api/backend"
	"rutter/log"
	"rutter/projections"
)

var errTest = errors.New("a test says so")

// TestConditions: If-Match and If-None-Match, and the words of 412.
func TestConditions(t *testing.T) {
	w := furnished(t)
	path := "/nics/" + w.make("/nics", nicBody())["mac"].(string)
	tag := w.do("GET", path, "").header.Get("Etag")
	bareTag := strings.Trim(tag, `"`) // as old clients may send it
	refused := func(a answer, message string) {
		t.Helper()
		want := canonical(t, plainError("PreconditionFailed", message))
		if a.status != 412 || canonical(t, a.body) != want {
			t.Errorf("got %d %s, want 412 %s", a.status, a.body, want)
		}
	}
	refused(w.do("PUT", path, `{"model": "a"}`, "If-Match", "X"), "if-match 'X' didn't match etag '"+tag+"'")
	refused(w.do("DELETE", path, "", "If-Match", `"X"`), "if-match '\"X\"' didn't match etag '"+tag+"'")
	refused(w.do("GET", path, "", "If-Match", "X"), "if-match 'X' didn't match etag '"+tag+"'")
	refused(w.do("PUT", path, `{"model": "a"}`, "If-None-Match", bareTag), "if-none-match '"+bareTag+"' matched etag '"+tag+"'")
	refused(w.do("PUT", path, `{"model": "a"}`, "If-None-Match", "*"), "if-none-match '*' matched etag '"+tag+"'")
	same(t, "unchanged", w.do("GET", path, "", "If-None-Match", tag).status, 304)
	same(t, "changed", w.do("GET", path, "", "If-None-Match", "X").status, 200)
	a := w.do("PUT", path, `{"model": "a"}`, "If-Match", "X, "+bareTag)
	same(t, "one of several", a.status, 200)
	if next := a.header.Get("Etag"); next == tag || next == "" {
		t.Errorf("Etag after an update: got %q, it was %q", next, tag)
	}
	same(t, "any", w.do("PUT", path, `{"model": "b"}`, "If-Match", "*").status, 200)
	same(t, "none of these", w.do("PUT", path, `{"model": "c"}`, "If-None-Match", "X").status, 200)
	last := w.do("GET", path, "").header.Get("Etag")
	same(t, "delete", w.do("DELETE", path, "", "If-Match", last).status, 204)
}

// behind is the store of a server that has applied nothing until it asks the leader.
type behind struct {
	*memory
	confirmed atomic.Bool
}

func (b *behind) View(fn func(*projections.State, log.Cursor)) {
	if !b.confirmed.Load() {
		fn(projections.NewState(), log.Cursor{})
		return
	}
	b.memory.View(fn)
}

func (b *behind) Consistent(ctx context.Context) (log.Seq, error) {
	b.confirmed.Store(true)
	return b.memory.Consistent(ctx)
}

// An object that was made through another server a moment ago is found by a write here.
func TestWriteAtAServerBehind(t *testing.T) {
	w := furnished(t)
	late := newWorld(t, func(cfg *Config) { cfg.Store = &behind{memory: w.store} })
	same(t, "status", late.do("PUT", "/networks/"+net2, `{"description": "d"}`).status, 200)
	same(t, "status of what is not there", late.do("PUT", "/networks/"+absent, `{"description": "d"}`).status, 404)
}

// TestRacingWriters: of many who update what they read, each succeeds on what no
// other changed meanwhile: no update is lost.
func TestRacingWriters(t *testing.T) {
	w := furnished(t)
	path := "/networks/" + net2
	w.ok(w.do("PUT", path, `{"description": "0"}`))
	const writers, each = 8, 15
	var lost atomic.Int64
	var g sync.WaitGroup
	for range writers {
		g.Go(func() {
			for done := 0; done < each; {
				a := w.do("GET", path, "")
				var n int
				_, _ = fmt.Sscan(w.ok(a)["description"].(string), &n)
				put := w.do("PUT", path, fmt.Sprintf(`{"description": "%d"}`, n+1), "If-Match", a.header.Get("Etag"))
				switch put.status {
				case 200:
					done++
				case 412:
				default:
					lost.Add(1)
					return
				}
			}
		})
	}
	g.Wait()
	same(t, "answers that are neither 200 nor 412", lost.Load(), int64(0))
	same(t, "the sum", w.ok(w.do("GET", path, ""))["description"], fmt.Sprint(writers*each))
}

// TestUnknownOutcome: what an election swallows is proposed again with the same
// id, and applied once.
func TestUnknownOutcome(t *testing.T) {
	w := furnished(t)
	w.store.fail = func(try int) (bool, error) {
		switch try {
		case 1:
			return false, fmt.Errorf("election: %w", backend.ErrNoLeader)
		case 2:
			return true, errors.New("leadership lost")
		}
		return true, nil
	}
	before := w.store.Head().Seq
	w.make("/nics", nicBody())
	same(t, "events", w.store.Head().Seq, before+1)
	w.store.fail = func(int) (bool, error) { return false, fmt.Errorf("full: %w", backend.ErrOverloaded) }
	a := w.do("POST", "/nics", nicBody())
	same(t, "overloaded", a.status, 503)
	same(t, "Retry-After", a.header.Get("Retry-After"), "1")
}

// TestPages: whatever the sizes of the pages, paging through a list shows each
// object once.
func TestPages(t *testing.T) {
	w := furnished(t)
	load := func(o log.Object) {
		if err := w.store.state.Load(projections.Record{Object: o, Revision: 1, Seq: 1}); err != nil {
			t.Fatal(err)
		}
	}
	const nics = 1700 // more than a slice, and than a page
	n2, err := log.ParseUUID(net2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range nics {
		nic := &log.NIC{MAC: log.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}, BelongsToUUID: log.UUID{byte(i % 3), 1}, OwnerUUID: log.UUID{byte(i % 2), 2}}
		if i%2 == 0 {
			nic.NetworkUUID = n2
		}
		load(nic)
	}
	lists := map[string]int{
		"/nics?": nics, "/nics?network_uuid=" + net2: (nics + 1) / 2,
		"/nics?belongs_to_uuid=" + (log.UUID{0, 1}).String() + "," + (log.UUID{1, 1}).String(): 1134,
		"/nics?owner_uuid=" + (log.UUID{1, 2}).String():                                        nics / 2,
	}
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SampledFrom([]string{"/nics?", "/nics?network_uuid=" + net2, "/nics?owner_uuid=" + (log.UUID{1, 2}).String(), "/nics?belongs_to_uuid=" + (log.UUID{0, 1}).String() + "," + (log.UUID{1, 1}).String()}).Draw(t, "list")
		seen := map[any]bool{}
		for offset := 0; ; {
			limit := rapid.IntRange(300, 1000).Draw(t, "limit")
			page := w.listed(fmt.Sprintf("%s&limit=%d&offset=%d", path, limit, offset))
			for _, nic := range page {
				if seen[nic["mac"]] {
					t.Fatalf("%s comes twice", nic["mac"])
				}
				seen[nic["mac"]] = true
			}
			if offset += len(page); len(page) < limit {
				break
			}
		}
		if got, want := len(seen), lists[path]; got != want {
			t.Fatalf("%s: got %d objects, want %d", path, got, want)
		}
	})
}
