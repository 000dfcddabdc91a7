package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"rutter/api/internal/apitest"
	"rutter/api/internal/logserver"
	"rutter/log"
)

// searched is an answer of GET /log/search, with its entries decoded.
type searched struct {
	logserver.SearchForm
	seqs []log.Seq
}

func searchLog(t *testing.T, world *apitest.World, query url.Values, headers ...string) searched {
	t.Helper()
	w := world.Call("GET", "/log/search?"+query.Encode(), "", headers...)
	if w.Code != http.StatusOK {
		t.Fatalf("%v: %d %s", query, w.Code, w.Body)
	}
	var s searched
	if err := json.Unmarshal(w.Body.Bytes(), &s.SearchForm); err != nil {
		t.Fatal(err)
	}
	for _, line := range s.Entries {
		var l struct{ Seq log.Seq }
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		s.seqs = append(s.seqs, l.Seq)
	}
	return s
}

// A search selects what GET /log with the same filters does, the newest first, in pages
// that follow each other without a gap.
func TestSearchIsTheLogBackwards(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	for i := range 1500 {
		b.Must("POST", "/nic_tags", fmt.Sprintf(`{"name":"tag%d"}`, i))
	}
	for _, query := range []url.Values{
		{},
		{"kind": {"nic_tag"}},
		{"kind": {"server"}},
		{"action": {"create"}, "kind": {"server,network"}},
		{"object": {"tag3"}},
		{"until": {"20"}},
		{"vnet": {"1001"}},
	} {
		var want []log.Seq
		for line := range strings.Lines(b.Call("GET", "/log?"+query.Encode(), "").Body.String()) {
			var l struct{ Seq log.Seq }
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			want = append([]log.Seq{l.Seq}, want...)
		}
		if len(want) == 0 {
			t.Fatalf("%v selects nothing", query)
		}
		var got []log.Seq
		looked := 0
		for page := url.Values(nil); ; {
			asked := url.Values{"limit": {"100"}}
			for name, values := range query {
				asked[name] = values
			}
			for name, values := range page {
				asked[name] = values
			}
			s := searchLog(t, b.World, asked)
			got = append(got, s.seqs...)
			looked += s.Looked
			if s.Next == nil {
				break
			}
			page = url.Values{"before": {s.Next.String()}}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v: %d entries backwards, want the %d of GET /log", query, len(got), len(want))
		}
		if whole := int(b.Store.Head().Seq); looked != whole && !query.Has("until") {
			t.Errorf("%v: %d entries were matched, want each of %d once", query, looked, whole)
		}
		query.Set("count", "1")
		if s := searchLog(t, b.World, query); s.Found != len(want) || len(s.Entries) > 0 || s.Next != nil {
			t.Errorf("%v: counted %d with %d entries, want %d with none", query, s.Found, len(s.Entries), len(want))
		}
	}
}

// A text is found anywhere in the line, in either case of letters, and counted alike.
func TestSearchForText(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	b.Must("POST", "/nic_tags", `{"name":"Needle7"}`)
	b.Must("POST", "/nic_tags", `{"name":"other"}`)
	for _, query := range []url.Values{{"text": {"needle7"}}, {"text": {"NEEDLE7"}, "kind": {"nic_tag"}}} {
		if s := searchLog(t, b.World, query); s.Found != 1 || len(s.seqs) != 1 || s.seqs[0] != b.Store.Head().Seq-1 {
			t.Errorf("%v: found %v", query, s.seqs)
		}
		query.Set("count", "1")
		if s := searchLog(t, b.World, query); s.Found != 1 {
			t.Errorf("%v: counted %d, want 1", query, s.Found)
		}
	}
	if s := searchLog(t, b.World, url.Values{"text": {"needle7"}, "kind": {"server"}}); s.Found != 0 || s.Looked == 0 {
		t.Errorf("a text that only a tag has was found in %d of %d servers' entries", s.Found, s.Looked)
	}
}

// One answer looks at a bounded number of entries, and says where to go on.
func TestSearchIsBounded(t *testing.T) {
	store := newMemory()
	for i := range 2000 {
		store.Tag(t, fmt.Sprintf("tag%d", i))
	}
	s, err := New(Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	world := &apitest.World{T: t, Store: store.Memory, Handler: s.Handler()}
	got := searchLog(t, world, url.Values{"limit": {"7"}})
	if got.Found != 7 || got.Looked != 7 || got.Next == nil || got.Next.Seq != 1994 {
		t.Errorf("looked at %d for %d entries, next %v", got.Looked, got.Found, got.Next)
	}
	if w := world.Call("GET", "/log/search?limit=1001", ""); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("1001 entries at once: %d", w.Code)
	}
	if w := world.Call("GET", "/log/search?text="+strings.Repeat("x", 257), ""); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("a text of 257 bytes: %d", w.Code)
	}
	store.Replace(t, apitest.UUID(9), 0, 2000)
	if w := world.Call("GET", "/log/search?before="+got.Next.String(), ""); w.Code != http.StatusConflict {
		t.Errorf("the next of another log: %d %s", w.Code, w.Body)
	}
}

// An answer of large entries ends before it has many bytes, and the next one goes on.
func TestSearchIsBoundedInBytes(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	const vms, most = 80, 8 << 20
	long := strings.Repeat("x", 120<<10)
	for i := range vms {
		b.Must("POST", "/vms", fmt.Sprintf(`{"uuid":"5595d88c-6e4d-4bda-b58e-97dd02e4%04d","alias":"large%d","owner_uuid":%q,"state":"running","properties":%q}`, i, i, readerOwner, `{"k":"`+long+`"}`))
	}
	found := map[log.Seq]bool{}
	query := url.Values{"text": {"large"}}
	for answers := 1; ; answers++ {
		w := b.Call("GET", "/log/search?"+query.Encode(), "")
		if w.Body.Len() > most {
			t.Errorf("an answer of %d bytes, want at most %d", w.Body.Len(), most)
		}
		s := searchLog(t, b.World, query)
		if s.Found == 0 && s.Next != nil {
			t.Fatal("an answer without an entry, and more to come")
		}
		for _, seq := range s.seqs {
			found[seq] = true
		}
		if s.Next == nil {
			if answers < 2 {
				t.Error("all in one answer")
			}
			break
		}
		query.Set("before", s.Next.String())
	}
	if len(found) != vms {
		t.Errorf("found %d entries, want %d", len(found), vms)
	}
}
