package replayinto

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rutter/log"
)

// A replay that goes on gives each change that may be under way the id that it had, also
// of several processes ago, and another one to those that are too old for that.
func TestIDsOfAReplayThatGoesOn(t *testing.T) {
	name := filepath.Join(t.TempDir(), "map")
	now := time.UnixMilli(1_800_000_000_000)
	clock := func() time.Time { return now }
	source, target := log.UUID{1}, log.UUID{2}
	tag := func(at place) changeTag {
		return tagOf(mappedChange{Cluster: source, First: log.Seq(at), Last: log.Seq(at)})
	}
	ids := map[place]log.UUID{}
	// give gives ids to the places from..to, of which none from oldest on is recorded.
	give := func(from, to, oldest place) *resume {
		t.Helper()
		r, err := openResume(name, source, target, clock)
		if err != nil {
			t.Fatal(err)
		}
		for at := from; at < to; at++ {
			id, err := r.idOf(at, tag(at), func() error { return r.save(oldest, 77) })
			if err != nil {
				t.Fatal(err)
			}
			if was, ok := ids[at]; ok && was != id {
				t.Fatalf("the change at %d was %s and is %s", at, was, id)
			}
			if tagIn(id) != tag(at) {
				t.Fatalf("the change at %d has the id %s", at, id)
			}
			ids[at] = id
			if at%1000 == 0 {
				now = now.Add(time.Second)
			}
		}
		return r
	}
	give(10, 9000, 10) // killed
	now = now.Add(time.Minute)
	give(2000, 9500, 2000) // killed again: the first 2000 were there
	now = now.Add(time.Minute)
	r := give(5000, 20000, 5000)
	if r.After != 77 || len(r.Eras) < 4 {
		t.Errorf("after %d, %d eras", r.After, len(r.Eras))
	}
	if ids[10] == ids[19999] || ids[10].String()[:13] == ids[19999].String()[:13] {
		t.Errorf("the first id %s and the last %s have one time", ids[10], ids[19999])
	}
	now = now.Add(eraLives)
	was := ids[19999]
	delete(ids, 19999)
	give(19999, 20000, 19999)
	if ids[19999] == was {
		t.Error("an id was used again that servers may not remember")
	}
}

// The file beside the map is whole or not there: of another replay, too large or damaged,
// it says nothing, so that the whole target is looked at.
func TestResumeFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "map")
	one, two := log.UUID{1}, log.UUID{2}
	good, err := json.Marshal(resume{Source: one, Target: two, After: 9, Eras: []era{{3, 4}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		text string
		want log.Seq
	}{
		{string(good), 9},
		{string(good[:len(good)-2]), 0},
		{`{"source":"x"}`, 0},
		{string(make([]byte, maxResumeBytes+1)), 0},
		{`{"source":"01000000-0000-0000-0000-000000000000","target":"01000000-0000-0000-0000-000000000000","after":9}`, 0},
		{`{"source":"01000000-0000-0000-0000-000000000000","target":"02000000-0000-0000-0000-000000000000","after":9,"eras":[{"from":4},{"from":4}]}`, 0},
	} {
		if err := os.WriteFile(name+resumeSuffix, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := openResume(name, one, two, time.Now)
		if err != nil || r.After != test.want || test.want == 0 && len(r.Eras) > 0 {
			t.Errorf("%.80q: %+v, %v, want after %d", test.text, r, err, test.want)
		}
	}
}

func FuzzParseResume(f *testing.F) {
	f.Add([]byte(`{"after":9,"eras":[{"from":4,"ms":5},{"from":6,"ms":7}]}`))
	f.Add([]byte(`{"eras":[{"from":18446744073709551615,"ms":281474976710656}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := parseResume(b)
		if !ok {
			return
		}
		r.now = time.Now
		if _, err := r.idOf(1<<63, changeTag{}, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		for i, e := range r.Eras {
			if i > 0 && e.From <= r.Eras[i-1].From {
				t.Fatalf("eras %v", r.Eras)
			}
		}
	})
}

// The set of seqs has what was added, in whatever order, as ranges that do not touch.
func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s spans
		has := map[log.Seq]bool{}
		for range rapid.IntRange(0, 30).Draw(t, "adds") {
			first := log.Seq(rapid.IntRange(0, 60).Draw(t, "first"))
			last := first + log.Seq(rapid.IntRange(0, 5).Draw(t, "more"))
			s.add(first, last)
			for seq := first; seq <= last; seq++ {
				has[seq] = true
			}
		}
		for seq := range log.Seq(80) {
			if s.has(seq) != has[seq] {
				t.Fatalf("%v has %d: %t", s, seq, s.has(seq))
			}
		}
		for i := 1; i < len(s); i++ {
			if s[i].first <= s[i-1].last+1 {
				t.Fatalf("%v", s)
			}
		}
	})
}

// Two replays do not write one map, and a line that was refused is not done.
func TestMapIsOfOneReplay(t *testing.T) {
	name := filepath.Join(t.TempDir(), "map")
	one, two := log.UUID{1}, log.UUID{2}
	m, err := openMap(name, one, two)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openMap(name, one, two); err == nil {
		t.Error("two replays write one map")
	}
	source := mappedChange{Cluster: one, First: 3, Last: 4}
	if err := m.add(mapping{Source: source, Target: mappedChange{Cluster: two}, Refused: "no"}); err != nil {
		t.Fatal(err)
	}
	if m.has(source) {
		t.Error("a refused change counts as made")
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
}
