package api

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/projections"
)

// folded is a Past that folds the entries of a memory from the first.
type folded struct{ m *memory }

func (f folded) SeqAt(at log.Time) (seq log.Seq, err error) {
	for _, entry := range f.m.All() {
		e, err := entry.Event()
		if err != nil || e.Time > at {
			return seq, err
		}
		seq = entry.Seq
	}
	return seq, nil
}

func (f folded) StateAt(_ context.Context, seq log.Seq) (*projections.State, error) {
	if seq > log.Seq(len(f.m.All())) {
		return nil, log.ErrAhead
	}
	state := projections.NewState()
	for _, entry := range f.m.All()[:seq] {
		e, err := entry.Event()
		if err == nil {
			_, err = state.Apply(entry.Seq, e)
		}
		if err != nil {
			return nil, err
		}
	}
	return state, nil
}

func (f folded) PartAt(ctx context.Context, _ PastPart, seq log.Seq) (*projections.State, error) {
	return f.StateAt(ctx, seq)
}

func (f folded) HistoryOf(_ context.Context, of PastObject, after log.Seq, limit int) (seqs []log.Seq, err error) {
	for _, entry := range f.m.All() {
		e, err := entry.Event()
		if err != nil {
			return nil, err
		}
		if entry.Seq > after && e.Kind == of.Kind && e.ID == of.ID && len(seqs) < limit {
			seqs = append(seqs, entry.Seq)
		}
	}
	return seqs, nil
}

// TestReadsOfThePast: every read answers with ?at as it answered then.
func TestReadsOfThePast(t *testing.T) {
	past := &folded{}
	b := bedOf(t, Config{Past: past})
	past.m = b.store
	b.furnish()
	mac := b.nic(fabricA, cn1)
	paths := []string{
		"/nics", "/networks", "/nic_tags", "/servers", "/vms", "/nics/" + mac, "/nics?cn_uuid=" + cn1.String(),
		"/networks/" + fabricA.String(), "/lookup/vl3?vnet=1001&ip=10.0.0.5", "/log/state", "/log/state?vnet=1001",
		"/log/state?cn=" + cn1.String() + "&kind=nic", "/log/state?kind=nic&object=" + mac, "/log/state?kind=setting&offset=1&limit=2", "/vms/lookup?state=~.*", "/vms/lookup?server_uuid=" + cn1.String(),
	}
	was := map[log.Seq][]string{}
	note := func() {
		var answers []string
		for _, path := range paths {
			answers = append(answers, b.call("GET", path, "").Body.String())
		}
		was[b.store.Head().Seq] = answers
	}
	note()
	b.must("PUT", "/nics/"+mac, `{"state":"running"}`)
	note()
	b.must("PUT", "/networks/"+fabricA.String(), `{"mtu":1400}`)
	note()
	b.call("DELETE", "/nics/"+mac, "")
	for seq, answers := range was {
		for i, path := range paths {
			sep := "?"
			if strings.Contains(path, "?") {
				sep = "&"
			}
			w := b.call("GET", path+sep+"at="+seq.String(), "")
			if w.Body.String() != answers[i] || w.Code == 200 && w.Header().Get("Rutter-Seq") != seq.String() {
				t.Errorf("%s at %d: %s\n%s\nwant\n%s", path, seq, w.Header().Get("Rutter-Seq"), w.Body, answers[i])
			}
		}
	}
	head := b.store.Head().Seq
	var diff diffForm
	w := b.call("GET", "/log/diff?cn="+cn1.String()+"&from="+(head-2).String(), "")
	if err := json.Unmarshal(w.Body.Bytes(), &diff); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if !slices.ContainsFunc(diff.Objects, func(o objectDiff) bool { return o.Action == log.Delete && o.ID == mac }) {
		t.Errorf("diff: %s", w.Body)
	}
	for query, status := range map[string]int{"at=x": 422, "at=-1": 422, "at=9999": 409} {
		if w := b.call("GET", "/nics?"+query, ""); w.Code != status {
			t.Errorf("%s: %s, want %d", query, pretty(w), status)
		}
	}
	for query, field := range map[string]string{"cn=" + cn1.String() + "&vnet=1": "vnet", "object=x": "kind", "kind=x": "kind", "limit=0": "limit", "offset=-1": "offset"} {
		if w := b.call("GET", "/log/state?"+query, ""); w.Code != 422 || !strings.Contains(w.Body.String(), `"field":"`+field+`"`) {
			t.Errorf("/log/state?%s: %s", query, pretty(w))
		}
	}
	if w := b.call("GET", "/log?after=9999", ""); !strings.Contains(w.Body.String(), "beyond the head of this log: after seq 9999, and the head is "+head.String()) {
		t.Errorf("a place ahead: %s", pretty(w))
	}
	all := strings.SplitAfter(b.call("GET", "/log/state?kind=network", "").Body.String(), "\n")
	if len(all) < 3 {
		t.Fatalf("networks: %q", all)
	}
	if got := b.call("GET", "/log/state?kind=network&offset=1&limit=1", "").Body.String(); got != all[1] {
		t.Errorf("the second network: %q, want %q", got, all[1])
	}
	if got, want := b.call("GET", "/log/history?kind=nic&object="+mac, "").Body.String(), b.call("GET", "/nics/"+mac+"/history", "").Body.String(); got != want || strings.Count(got, "\n") != 3 {
		t.Errorf("history: got\n%s\nwant\n%s", got, want)
	}
	for path, want := range map[string]string{
		"/cns?at=" + head.String():                                         `"cn_uuid":"` + cn1.String() + `"`,
		"/cns/" + cn1.String() + "?at=" + head.String():                    `"status":`,
		"/trace?from=" + mac + "&to=" + mac + "&at=" + head.String():       `"from-unknown"`,
		"/trace?from=" + mac + "&to=" + mac + "&at=" + (head - 1).String(): `"as-of"`,
		"/trace?from=nobody&to=10.0.0.5&at=" + (head - 1).String():         `"from-unknown"`,
	} {
		if w := b.call("GET", path, ""); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %s, want %s", path, pretty(w), want)
		}
	}
	if w := b.call("GET", "/cns/"+cn1.String()+"?at=0", ""); w.Code != 404 {
		t.Errorf("a CN before there was one: %s", pretty(w))
	}
	b.s.cfg.ReadOnly = true
	for path, method := range map[string]string{"/nics": "POST", "/changes": "POST", "/feed": "GET"} {
		if w := b.call(method, path, "{}"); w.Code != 403 || !strings.Contains(w.Body.String(), "ReadOnly") {
			t.Errorf("%s %s of a log that is only shown: %s", method, path, pretty(w))
		}
	}
	if w := newBed(t).call("GET", "/nics?at=1", ""); w.Code != 501 {
		t.Errorf("no past: %s", pretty(w))
	}
}
