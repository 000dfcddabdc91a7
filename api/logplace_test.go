package api

import (
	"fmt"
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
		e, err := b.store.entries[seq-1].Event()
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

func TestServerSentEvents(t *testing.T) {
	b := newBed(t)
	b.furnish()
	w := b.call("GET", "/log?limit=1", "", "Accept", "text/event-stream", "Last-Event-ID", "2")
	if got := w.Header().Get("Content-Type"); got != eventStream {
		t.Errorf("content type %q", got)
	}
	want := "id: 3\nevent: nic_tag.create\ndata: {"
	if got := w.Body.String(); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "}\n\n") || strings.Count(got, "\n") != 4 {
		t.Errorf("got %q, want it to begin with %q and to be one event", got, want)
	}
	if w := b.call("GET", "/log", "", "Accept", "text/event-stream", "Last-Event-ID", "99999"); w.Code != 409 {
		t.Errorf("an id beyond the head: %s", pretty(w))
	}
	if w := b.call("GET", "/log", "", "Accept", "text/event-stream", "Last-Event-ID", "x"); w.Code != 400 {
		t.Errorf("an id that is none: %s", pretty(w))
	}
}
