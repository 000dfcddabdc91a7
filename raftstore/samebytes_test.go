package raftstore

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/rules"
)

// applied is one line of testdata/applied-v1.ndjson.gz: a raft entry, and what the
// program of the first feature version made of it.
type applied struct {
	Entry   []byte   `json:"entry"`
	Results [][]byte `json:"results"` // encoded, of each change
	Events  [][]byte `json:"events,omitempty"`
	Hash    string   `json:"hash"` // chain hash after it
	State   string   `json:"state"`
	Window  string   `json:"window"`
	Digest  string   `json:"digest"` // what servers compare
}

const appliedFixture = "testdata/applied-v1.ndjson.gz"

// apply applies an entry and says what came of it.
func (s *bare) apply(data []byte) applied {
	s.t.Helper()
	from := s.applier.head.Seq
	made := applied{Entry: data}
	results := s.results(s.applier.head.Applied+1, data)
	for i := range results {
		encoded, err := log.NewEncoder().Result(&results[i])
		if err != nil {
			s.t.Fatal(err)
		}
		made.Results = append(made.Results, encoded)
	}
	h := &s.applier.head
	for seq := from + 1; seq <= h.Seq; seq++ {
		made.Events = append(made.Events, s.ring.At(seq).Bytes)
	}
	made.Hash, made.State, made.Window = fmt.Sprintf("%x", h.Hash), fmt.Sprintf("%x", h.StateSum.Bytes()), fmt.Sprintf("%x", h.WindowSum.Bytes())
	made.Digest = fmt.Sprintf("%x", h.Digest().Bytes())
	return made
}

// TestSameBytesAsTheFirstVersion replays a log that the program of feature version
// 1 wrote, and gets its bytes: results, events, chain and digests (SAFETY D1). The
// same changes under the next version differ, and only in refusals that quote
// input or are over a limit.
func TestSameBytesAsTheFirstVersion(t *testing.T) {
	t.Parallel()
	want := readApplied(t)
	s := bareStore(t, t.TempDir())
	defer s.close()
	s.found(log.FeatureFirst)
	for i := range want {
		got := s.apply(want[i].Entry)
		if !same(t, i, &got, &want[i]) {
			return
		}
		if i%50 == 0 { // what a start reads is what was in memory
			s.flush()
			s.restart()
		}
	}
	t.Logf("%d entries, %d events", len(want), s.applier.head.Seq)
	next := bareStore(t, t.TempDir())
	defer next.close()
	next.found(log.FeatureContained)
	differ := 0
	for i := range want {
		for j, result := range next.apply(want[i].Entry).Results {
			if bytes.Equal(result, want[i].Results[j]) {
				continue
			}
			differ++
			was, is := decodedResult(t, want[i].Results[j]), decodedResult(t, result)
			if was.Refusal == nil || is.Refusal == nil {
				t.Errorf("entry %d, change %d: accepted by one version only:\n%+v %v\n%+v %v", i, j, was, was.Refusal, is, is.Refusal)
			}
			if len(result) > log.MaxResultBytes {
				t.Errorf("entry %d, change %d: a result of %d bytes", i, j, len(result))
			}
		}
	}
	if differ == 0 {
		t.Error("the next version answers no change otherwise: the fixture shows nothing")
	}
	t.Logf("%d results differ under version %d", differ, log.FeatureContained)
}

func decodedResult(t *testing.T, b []byte) *log.Result {
	t.Helper()
	r, err := log.DecodeResult(b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func same(t *testing.T, i int, got, want *applied) bool {
	t.Helper()
	for j := range want.Results {
		if !bytes.Equal(got.Results[j], want.Results[j]) {
			t.Errorf("entry %d, change %d:\ngot  %q\nwant %q", i, j, got.Results[j], want.Results[j])
			return false
		}
	}
	for j := range want.Events {
		if j >= len(got.Events) || !bytes.Equal(got.Events[j], want.Events[j]) {
			t.Errorf("entry %d, event %d: got other bytes than %x", i, j, want.Events[j])
			return false
		}
	}
	if got.Hash != want.Hash || got.State != want.State || got.Window != want.Window || got.Digest != want.Digest {
		t.Errorf("entry %d: got chain %s, state %s, window %s, digest %s\nwant %s, %s, %s, %s", i, got.Hash, got.State, got.Window, got.Digest, want.Hash, want.State, want.Window, want.Digest)
		return false
	}
	return true
}

func readApplied(t *testing.T) (lines []applied) {
	t.Helper()
	f, err := os.Open(appliedFixture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(unzip); ; {
		var a applied
		if err := dec.Decode(&a); errors.Is(err, io.EOF) {
			return lines
		} else if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, a)
	}
}

// TestWriteApplied writes the fixture: see testdata/README.md. It runs in a tree of
// the program of the first feature version, and nowhere else.
func TestWriteApplied(t *testing.T) {
	path := os.Getenv("RUTTER_WRITE_APPLIED")
	if path == "" {
		t.Skip("RUTTER_WRITE_APPLIED names no file to write")
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	s := bareStore(t, t.TempDir())
	defer s.close()
	s.found(1)
	enc := json.NewEncoder(zip)
	accepted, refused := 0, 0
	for entry := range variedEntries(t, s) {
		made := s.apply(entry)
		for _, r := range made.Results {
			if decodedResult(t, r).Refusal == nil {
				accepted++
			} else {
				refused++
			}
		}
		if err := enc.Encode(made); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(zip.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
}

// variedEntries yields entries of changes of all kinds, most of them good, some mutated,
// some sent again, some with ids that no client should choose.
func variedEntries(t *testing.T, s *bare) iter.Seq[[]byte] {
	rng := rand.New(rand.NewPCG(15, 1))
	n := uint64(0)
	change := func(by log.Author, ops ...log.Op) []byte {
		n++
		return encodedChange(t, &log.Change{ID: fixedID(n), Actor: "tester", Time: baseTime + log.Time(n)*1_000_000, Seed: n * 7919, Ops: ops, By: by})
	}
	return func(yield func([]byte) bool) {
		var all [][]byte
		for _, text := range settling {
			all = append(all, change(log.Author{Role: log.RoleTrusted}, changetest.Op(t, text)))
			if !yield(batchOf(all[len(all)-1])) {
				return
			}
		}
		for range 600 {
			var batch [][]byte
			for range 1 + rng.IntN(2) {
				by := fixtureAuthors()[rng.IntN(len(fixtureAuthors()))]
				var ops []log.Op
				for range []int{1, 1, 1, 1, 1, 1, 1, 2}[rng.IntN(8)] {
					ops = append(ops, changetest.Op(t, varied(rng, asked[rng.IntN(len(asked))])))
				}
				b := change(by, ops...)
				switch rng.IntN(12) {
				case 0, 1, 2:
					b = changetest.Mutate(rng, b, all)
				case 3:
					all := poisons([]int{10, 200, 2000}[rng.IntN(3)])
					b = change(by, all[rng.IntN(len(all))])
				case 4:
					b = all[rng.IntN(len(all))]
				case 5:
					c := &log.Change{ID: fixedID(n), Ops: ops, Time: baseTime}
					c.ID[6*rng.IntN(2)] ^= 0x40 // another version, or another time
					b = encodedChange(t, c)
				}
				if survives(s, b) {
					batch = append(batch, b)
				}
			}
			if all = append(all, batch...); len(batch) > 0 && !yield(batchOf(batch...)) {
				return
			}
		}
	}
}

// varied returns an operation's text about another object of the same kind, so that
// more than the first one of each is accepted.
func varied(rng *rand.Rand, text string) string {
	n := strconv.Itoa(rng.IntN(9))
	return strings.NewReplacer(
		"#7", "#"+strconv.Itoa(4+rng.IntN(4)), "#8", "#"+strconv.Itoa(8+rng.IntN(2)), "external5", "external"+n, `"aggr0"`, `"aggr`+n+`"`,
		"10.0.0.9", "10.0.0.5"+n, "10.5.0.0", "10.5"+n+".0.0", `"vlan_id": 2, "name": "v"`, `"vlan_id": `+strconv.Itoa(2+rng.IntN(9))+`, "name": "v"`,
		"reader:x", "reader:x"+n, "anna", "anna"+n, `"hostname": "h2"`, `"hostname": "h`+n+`"`, `"ram": 64`, `"ram": `+n,
		`"alias": "web"`, `"alias": "web`+n+`"`, "10.0.0.77", "10.0.0.7"+n,
	).Replace(text)
}

// survives reports whether the program of the first feature version goes on after a change.
func survives(s *bare, b []byte) (ok bool) {
	defer func() { ok = ok && recover() == nil }()
	c, err := log.DecodeChange(b)
	if err != nil || c.Time > baseTime+60_000_000_000 {
		return false
	}
	events, result := rules.Decide(s.state, c)
	for _, e := range events {
		if _, err := log.NewEncoder().Event(e); err != nil {
			return false
		}
	}
	encoded, err := log.NewEncoder().Result(&result)
	return err == nil && len(encoded) < 1<<20
}
