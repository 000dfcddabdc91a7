package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rutter/log"
)

// seqsOf are the seqs of an answer in lines.
func seqsOf(t *testing.T, b *bed, query string, headers ...string) string {
	t.Helper()
	w := b.call("GET", "/log?"+query, "", headers...)
	if w.Code != 200 {
		t.Fatalf("%s: %s", query, pretty(w))
	}
	var seqs []string
	for line := range strings.Lines(w.Body.String()) {
		if at := strings.Index(line, `"seq":`); at >= 0 {
			seqs = append(seqs, line[at+6:at+6+strings.IndexAny(line[at+6:], ",}")])
		}
	}
	return strings.Join(seqs, " ")
}

func TestLogPlaces(t *testing.T) {
	b := newBed(t)
	b.furnish()
	head := b.store.Head().Seq
	timeOf := func(seq log.Seq) string {
		e, err := b.store.All()[seq-1].Event()
		if err != nil {
			t.Fatal(err)
		}
		return e.Time.Std().Format("2006-01-02T15:04:05.000000000Z")
	}
	for query, want := range map[string]string{
		"last=2":                             fmt.Sprintf("%d %d", head-1, head),
		"last=1&kind=nic_tag":                "3",
		"last=2&kind=nic_tag":                "2 3",
		"last=99&kind=nic_tag":               "1 2 3",
		"after=2&until=4":                    "3 4",
		"until=2":                            "1 2",
		"after=1&until=" + timeOf(3):         "2 3",
		"since=" + timeOf(3) + "&until=4":    "3 4",
		"since=2001-01-01T00:00:00Z&until=1": "1",
		"since=2201-01-01T00:00:00Z":         "",
		"follow=1&until=3":                   "1 2 3", // it ends by itself
		"follow=1&until=3&kind=nic_tag":      "1 2 3",
		"action=create&kind=nic_tag":         "1 2 3",
		"kind=nic_tag&action=delete":         "",
		"kind=nic_tag&until=" + timeOf(2):    "1 2",
		"actor=nobody":                       "",
	} {
		if got := seqsOf(t, b, query); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{"last=2&after=1", "since=yesterday", "until=tomorrow", "last=0", "action=x", "owner=me", "path=X", "ip=10", "network=", "kind=nics", "vnet=99999999"} {
		if w := b.call("GET", "/log?"+query, ""); w.Code != 422 {
			t.Errorf("%s: %s", query, pretty(w))
		}
	}
}

// Each filter of GET /log selects the same as lines of JSON and as server-sent
// events, and what it selects is what a look at every entry says.
func TestLogFilters(t *testing.T) {
	b := newBed(t)
	b.furnish()
	mac := b.nic(fabricA, cn1)
	b.nic(fabricB, cn2)
	b.must("PUT", "/nics/"+mac, fmt.Sprintf(`{"cn_uuid":%q}`, cn3))
	address := b.must("GET", "/nics/"+mac, "")["ip"].(string)
	b.must("DELETE", "/nics/"+mac, "")
	head := b.store.Head().Seq
	actor := ""
	seqsIf := func(fits func(e *log.Event) bool) string {
		var seqs []string
		for _, entry := range b.store.All() {
			e, err := entry.Event()
			if err != nil {
				t.Fatal(err)
			}
			if actor = e.Actor; fits(e) {
				seqs = append(seqs, entry.Seq.String())
			}
		}
		return strings.Join(seqs, " ")
	}
	scoped := func(scope log.Scope) string {
		return seqsIf(func(e *log.Event) bool { return slices.Contains(e.Scopes, scope) })
	}
	ofKind := func(e *log.Event, kinds ...log.Kind) bool { return slices.Contains(kinds, e.Kind) }
	all := seqsIf(func(*log.Event) bool { return true })
	for query, want := range map[string]string{
		"":                all,
		"kind=nic":        seqsIf(func(e *log.Event) bool { return ofKind(e, log.KindNIC) }),
		"kind=nic,server": seqsIf(func(e *log.Event) bool { return ofKind(e, log.KindNIC, log.KindServer) }),
		"action=update":   seqsIf(func(e *log.Event) bool { return e.Action == log.Update }),
		"object=" + mac:   seqsIf(func(e *log.Event) bool { return e.ID == mac }),
		"vnet=1001":       scoped(log.VNetScope(vnetA)),
		"vnet=1001,1002": seqsIf(func(e *log.Event) bool {
			return slices.Contains(e.Scopes, log.VNetScope(vnetA)) || slices.Contains(e.Scopes, log.VNetScope(vnetB))
		}),
		"cn=" + cn1.String():           scoped(log.CNScope(cn1)),
		"cn=" + cn3.String():           scoped(log.CNScope(cn3)),
		"ip=" + address + "&vnet=1001": seqsIf(func(e *log.Event) bool { return e.ID == mac }),
		"network=" + fabricB.String(): seqsIf(func(e *log.Event) bool {
			return e.ID == fabricB.String() || ofKind(e, log.KindNIC) && slices.Contains(e.Scopes, log.VNetScope(vnetB))
		}),
		"owner=" + ownerB.String(): seqsIf(func(e *log.Event) bool {
			return e.ID == fabricB.String() || ofKind(e, log.KindNIC) && slices.Contains(e.Scopes, log.VNetScope(vnetB))
		}),
		"actor=" + actor:              all,
		"path=cn_uuid":                seqsIf(func(e *log.Event) bool { return e.ID == mac && e.Action == log.Update }),
		"after=4&until=6":             "5 6",
		fmt.Sprintf("after=%d", head): "",
		"last=3":                      fmt.Sprintf("%d %d %d", head-2, head-1, head),
		"limit=2&kind=server":         "8 10",
		"follow=1&until=2":            "1 2",
	} {
		if got := seqsOf(t, b, query); got != want {
			t.Errorf("lines, %s: got %s, want %s", query, got, want)
		}
		w := b.call("GET", "/log?"+query, "", "Accept", "text/event-stream")
		var ids []string
		for line := range strings.Lines(w.Body.String()) {
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				cursor, err := log.ParseCursor(strings.TrimSpace(id))
				if err != nil || b.store.CheckCursor(cursor) != nil {
					t.Errorf("events, %s: id %q is no cursor of the log: %v", query, id, err)
				}
				ids = append(ids, cursor.Seq.String())
			}
		}
		if got := strings.Join(ids, " "); w.Code != 200 || got != want {
			t.Errorf("events, %s: %d, got %s, want %s", query, w.Code, got, want)
		}
	}
}

func TestServerSentEvents(t *testing.T) {
	b := newBed(t)
	b.furnish()
	w := b.call("GET", "/log?limit=1", "", "Accept", "text/event-stream", "Last-Event-ID", b.store.CursorAt(2).String())
	if got := w.Header().Get("Content-Type"); got != eventStream {
		t.Errorf("content type %q", got)
	}
	want := "id: " + b.store.CursorAt(3).String() + "\nevent: nic_tag.create\ndata: {"
	if got := w.Body.String(); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "}\n\n") || strings.Count(got, "\n") != 4 {
		t.Errorf("got %q, want it to begin with %q and to be one event", got, want)
	}
	beyond := b.store.Head()
	beyond.Seq += 100
	if w := b.call("GET", "/log", "", "Accept", "text/event-stream", "Last-Event-ID", beyond.String()); w.Code != 409 {
		t.Errorf("an id beyond the head: %s", pretty(w))
	}
	// A seq has no timeline: it is taken of what people type, not as the id of an event.
	for _, id := range []string{"x", "2"} {
		if w := b.call("GET", "/log", "", "Accept", "text/event-stream", "Last-Event-ID", id); w.Code != 400 || !strings.Contains(w.Body.String(), "?after=SEQ") {
			t.Errorf("an id that is none: %s", pretty(w))
		}
	}
}
