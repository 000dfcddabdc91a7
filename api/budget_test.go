package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rutter/log"
	"rutter/log/budget"
)

// indexed is a store whose first entries have an index, as raftstore's do.
type indexed struct {
	*memory
	upTo    log.Seq      // entries that the index has
	named   atomic.Int64 // entries that the index named
	scanned atomic.Int64 // entries that were read without it
}

func (s *indexed) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	entries, err := s.memory.Entries(after, limit)
	s.scanned.Add(int64(len(entries)))
	return entries, err
}

// Mentions implements mentions, of segments of 64 entries.
func (s *indexed) Mentions(uuids []log.UUID, after log.Seq, limit int) (entries []log.Entry, place log.Seq, chain log.ChainPrefix, ok bool, err error) {
	end := (after/64 + 1) * 64
	if end > s.upTo {
		return nil, 0, chain, false, nil
	}
	all, err := s.memory.Entries(after, int(end-after))
	for _, e := range all {
		if e.Seq > end {
			break
		}
		place, chain = e.Seq, e.Hash.Prefix()
		if slices.ContainsFunc(uuids, func(u log.UUID) bool {
			return bytes.Contains(e.Bytes, u[:]) || bytes.Contains(e.Bytes, []byte(u.String()))
		}) {
			entries = append(entries, e)
			if s.named.Add(1); len(entries) == limit {
				break
			}
		}
	}
	return entries, place, chain, true, err
}

// linesOf reads lines of GET /log, and the cursor of the last one.
func linesOf(t *testing.T, body string) (seqs []log.Seq, next string) {
	t.Helper()
	for line := range strings.Lines(body) {
		var l struct {
			Seq   log.Seq         `json:"seq"`
			Next  string          `json:"next"`
			Error json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Error != nil || next != "" {
			t.Fatalf("after the cursor %q the line %s (%v)", next, line, err)
		}
		if next = l.Next; next == "" {
			seqs = append(seqs, l.Seq)
		}
	}
	return seqs, next
}

// W1: a tenant's read looks at what the index names and at little else, ends at
// its budget with a cursor, and who goes on from there gets exactly what is its own:
// also what it owned before.
func TestReadsEndAtTheirBudget(t *testing.T) {
	set, err := budget.Parse([]string{"tenant_entries=1000000:10"})
	if err != nil {
		t.Fatal(err)
	}
	store := &indexed{memory: newMemory()}
	s, err := New(Config{Store: store, Identify: byHeader, Budgets: set})
	if err != nil {
		t.Fatal(err)
	}
	b := bedWith(t, store.memory, s)
	const ours, theirs = "564d69b1-a178-3fbe-b36f-3f2b7fd7ed31", "930896af-bf8c-48d4-885c-6573a94b1853"
	write := func(method, path, body string) {
		t.Helper()
		if w := b.call(method, path, body, asHeader, "operator"); w.Code >= 300 {
			t.Fatalf("%s %s: %s", method, path, pretty(w))
		}
	}
	var want []log.Seq
	for i := range 500 {
		owner := theirs
		if i%3 == 0 {
			owner = ours
			want = append(want, store.Head().Seq+1)
		}
		write("POST", "/vms", fmt.Sprintf(`{"uuid":"%s","owner_uuid":"%s","server_uuid":"%s","state":"running"}`, testUUID(1000+i), owner, testUUID(9)))
	}
	want = append(want, store.Head().Seq+1) // it goes to another owner, and is news to both
	write("PUT", "/vms/"+testUUID(1000).String(), `{"owner_uuid":"`+theirs+`"}`)
	write("PUT", "/grants/reader:test", `{"owner_uuids":["`+ours+`"]}`)
	store.upTo = store.Head().Seq
	write("POST", "/vms", fmt.Sprintf(`{"uuid":"%s","owner_uuid":"%s","server_uuid":"%s","state":"running"}`, testUUID(2000), ours, testUUID(9)))
	want = append(want, store.Head().Seq)

	store.scanned.Store(0)
	var got []log.Seq
	answers := 0
	for path := "/log"; path != ""; answers++ {
		w := b.call("GET", path, "", asHeader, "reader")
		if w.Code != http.StatusOK {
			t.Fatalf("GET %s: %s", path, pretty(w))
		}
		seqs, next := linesOf(t, w.Body.String())
		got = append(got, seqs...)
		if path = ""; next != "" {
			if _, err := log.ParseCursor(next); err != nil {
				t.Fatal(err)
			}
			path = "/log?cursor=" + url.QueryEscape(next)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d entries, want %d: %v", len(got), len(want), got)
	}
	if answers < 3 {
		t.Errorf("%d answers: the budget did not end one", answers)
	}
	if n := store.scanned.Load(); n > 128 {
		t.Errorf("%d entries were looked at without the index", n)
	}
	if n := store.named.Load(); n > int64(2*len(want)) {
		t.Errorf("%d entries were looked at for %d", n, len(want))
	}
	if m := s.guard.Meters()[slices.IndexFunc(s.guard.Meters(), func(m *budget.Meter) bool { return m.Budget().Name == budget.TenantEntries })]; m.Used() < uint64(len(want)) || m.Used() > uint64(3*len(want)+200) {
		t.Errorf("the meter says %d", m.Used())
	}
	events := eventsInTurns(t, b, s)
	if !slices.Equal(events, want) {
		t.Errorf("as events got %d entries, want %d: %v", len(events), len(want), events)
	}
}

// Who has used up a budget of reading is refused with its name and a time, others
// are not, and what says how things are is answered still.
func TestReadsAreRefusedByName(t *testing.T) {
	set, err := budget.Parse([]string{"reader_entries=1:5"})
	if err != nil {
		t.Fatal(err)
	}
	b := bedOf(t, Config{Identify: byHeader, Budgets: set})
	for i := range 20 {
		b.must("POST", "/nic_tags", fmt.Sprintf(`{"name":"t%d"}`, i), asHeader, "operator")
	}
	if w := b.call("GET", "/log?kind=vm", "", asHeader, "reader"); w.Code != http.StatusOK {
		t.Fatal(pretty(w))
	}
	w := b.call("GET", "/log?kind=vm", "", asHeader, "reader")
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"name":"reader_entries"`) || !strings.Contains(w.Body.String(), "BudgetExceeded") {
		t.Errorf("over its budget: %d, Retry-After %q: %s", w.Code, w.Header().Get("Retry-After"), pretty(w))
	}
	for path, as := range map[string]string{"/log?kind=vm": "operator", "/status": "reader", "/nic_tags": "operator"} {
		if w := b.call("GET", path, "", asHeader, as); w.Code != http.StatusOK {
			t.Errorf("GET %s as %s: %s", path, as, pretty(w))
		}
	}
}

// A write that the leader refuses for a budget is answered with its name and a
// time, and what its author sends next is refused before anything is done.
func TestWritesOverBudgetAreShutOut(t *testing.T) {
	b := bedOf(t, Config{Identify: byHeader})
	exceeded := &budget.Exceeded{Name: budget.CNOperations, Who: "cn:x", Is: "operations: 1 a second", Wait: 90 * time.Second}
	b.store.FailWrites(1, fmt.Errorf("%w: %w", ErrOverloaded, exceeded))
	body := `{"ops":[{"action":"delete","kind":"vm","id":"` + testUUID(1).String() + `"}]}`
	for i := range 2 {
		w := b.call("POST", "/changes", body, asHeader, cn1.String())
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"cn_operations"`) {
			t.Errorf("write %d: %d, Retry-After %q: %s", i, w.Code, w.Header().Get("Retry-After"), pretty(w))
		}
	}
	if w := b.call("POST", "/changes", `{"ops":[{"action":"create","kind":"nic_tag","object":{"name":"a"}}]}`, asHeader, "operator"); w.Code != http.StatusOK {
		t.Errorf("an operator's write: %s", pretty(w))
	}
}

// eventsInTurns reads the log as an EventSource does, which asks the same again, with
// the last id that it got, whenever an answer ends.
func eventsInTurns(t *testing.T, b *bed, s *Server) (seqs []log.Seq) {
	t.Helper()
	last, head := "", s.store.Head()
	for range 1000 {
		headers := []string{asHeader, "reader", "Accept", eventStream}
		if last != "" {
			headers = append(headers, "Last-Event-ID", last)
		}
		w := b.call("GET", "/log?after=0", "", headers...)
		if w.Code != http.StatusOK {
			t.Fatalf("GET /log: %s", pretty(w))
		}
		before := last
		for _, event := range strings.Split(strings.TrimSpace(w.Body.String()), "\n\n") {
			id, rest, ok := strings.Cut(strings.TrimPrefix(event, "id: "), "\n")
			if !ok {
				continue
			}
			cursor, err := log.ParseCursor(id)
			if err != nil {
				t.Fatalf("%s: %v", event, err)
			}
			if last = id; !strings.HasPrefix(rest, "event: next\n") {
				seqs = append(seqs, cursor.Seq)
			}
		}
		if last == before || last == head.String() {
			return seqs
		}
	}
	t.Error("it came to no end")
	return seqs
}
