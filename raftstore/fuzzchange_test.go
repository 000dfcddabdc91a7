package raftstore

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/log/changetest"
)

// settledFile returns the changes.db of a settled cloud under a feature version.
func settledFile(t testing.TB, feature uint32) []byte {
	t.Helper()
	s := bareStore(t, t.TempDir())
	s.found(feature)
	for i, text := range settling {
		c := &log.Change{
			ID: fixedID(uint64(i)), Actor: "tester", Time: baseTime + log.Time(i), Seed: uint64(i), Ops: []log.Op{changetest.Op(t, text)}, By: log.Author{Role: log.RoleTrusted},
		}
		if r := s.batch(encodedChange(t, c))[0]; r.Refusal != nil {
			t.Fatalf("%s: %v", text, r.Refusal)
		}
	}
	s.flush()
	defer s.close()
	var file bytes.Buffer
	err := s.files.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(&file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// changeSeeds are bytes of changes: good, refused, mutated, poisonous, and none.
func changeSeeds(t testing.TB) [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var seeds [][]byte
	n := uint64(1000)
	add := func(by log.Author, ops ...log.Op) {
		n++
		c := &log.Change{ID: fixedID(n), Actor: "fuzz", Time: baseTime + log.Time(n), Seed: n, Ops: ops, By: by}
		if b, err := log.NewEncoder().Change(c); err == nil {
			seeds = append(seeds, b)
		}
	}
	for _, by := range []log.Author{{Role: log.RoleTrusted}, {Role: log.RoleCN, CN: changetest.UUID(11)}} {
		for _, text := range asked {
			add(by, changetest.Op(t, text))
		}
		for _, size := range []int{100, 4000} {
			for _, op := range poisons(size) {
				add(by, op)
			}
		}
	}
	trusted := log.Author{Role: log.RoleTrusted}
	add(trusted, changetest.Op(t, asked[0]), changetest.Op(t, asked[2]), changetest.Op(t, `delete nic_tag external5`))
	add(trusted, log.Op{Action: log.Create, Kind: log.KindVM, Object: withUnknown(t, &log.VM{Alias: "a", OwnerUUID: fixedID(1)}, 100)})
	add(trusted, log.Op{Action: log.Create, Kind: log.KindVM, Object: withUnknown(t, &log.VM{Alias: "a", OwnerUUID: fixedID(1)}, log.MaxUnknownBytes)})
	for i := range len(seeds) / 4 {
		seeds = append(seeds, changetest.Mutate(rng, seeds[4*i], seeds))
	}
	return append(seeds, nil, []byte{log.FormatVersion}, []byte("\x01\x9f"))
}

// FuzzChange takes the bytes of a change through three servers: one that goes on, one
// that restarts after it, and one that is killed before it is stored and applies it anew.
// Whatever they are, no server stops, and all agree on what became of it, also of its
// retry.
func FuzzChange(f *testing.F) {
	for _, seed := range changeSeeds(f) {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	files := map[bool][]byte{false: settledFile(f, log.FeatureFirst), true: settledFile(f, log.FeatureContained)}
	f.Fuzz(func(t *testing.T, raw []byte, contained bool) {
		if len(raw) > 0 && raw[0] != log.FormatVersion {
			return // of a newer program: it stops a server, and its leader proposes none
		}
		threeAgree(t, files[contained], raw)
	})
}

// threeAgree applies a change twice to three servers that begin with a file.
func threeAgree(t *testing.T, file, raw []byte) {
	t.Helper()
	goesOn, restarts, killed := copyOf(t, file), copyOf(t, file), copyOf(t, file)
	all := []*bare{goesOn, restarts, killed}
	defer func() {
		for _, s := range all {
			s.close()
		}
	}()
	c, readErr := log.DecodeChange(raw)
	if (readErr == nil) != (readable(raw) == nil) {
		t.Fatalf("DecodeChange says %v, what is proposed %v", readErr, readable(raw))
	}
	if readErr == nil { // as a leader sends it on
		if again, err := log.NewEncoder().Change(c); err == nil && readable(again) != nil {
			t.Fatalf("a leader proposes what cannot be read: %v", readable(again))
		}
		_, _ = goesOn.proposer.refuseEarly(c, trialBytes)
	}
	data := batchOf(raw)
	var first []byte
	for range 2 {
		index := goesOn.applier.head.Applied + 1
		var results [3][]byte
		for i, s := range all {
			results[i] = resultBytes(t, s.results(index, data)[0])
			switch s {
			case restarts:
				s.flush()
				if err := s.persister.Sweep(t.Context()); err != nil {
					t.Fatalf("sweep: %v", err)
				}
				s.restart()
			case killed:
				s.restart()
				if again := resultBytes(t, s.results(index, data)[0]); !bytes.Equal(again, results[i]) {
					t.Fatalf("applied anew it comes to %q, first to %q", again, results[i])
				}
				s.flush()
			}
			if got, want := s.applier.head.Digest(), goesOn.applier.head.Digest(); got != want {
				t.Fatalf("server %d: digest %x, the first has %x", i, got, want)
			}
			if !bytes.Equal(results[i], results[0]) {
				t.Fatalf("server %d came to %q, the first to %q", i, results[i], results[0])
			}
		}
		if remembered := goesOn.applier.window.Len() > len(settling); first != nil && remembered && !bytes.Equal(first, results[0]) {
			t.Fatalf("a retry got %q, the first %q", results[0], first)
		}
		first = results[0]
	}
	checkBounded(t, goesOn, first)
	checkEvents(t, goesOn)
}

func resultBytes(t *testing.T, r log.Result) []byte {
	t.Helper()
	b, err := log.NewEncoder().Result(&r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checkTold: a result can be read, and what its proposer is told is within the limits.
func checkBounded(t *testing.T, s *bare, encoded []byte) {
	t.Helper()
	result := decodedResult(t, encoded)
	if bounded := resultBytes(t, boundedResult(*result)); result.Refusal != nil && len(bounded) > log.MaxResultBytes {
		t.Fatalf("the proposer is told %d bytes", len(bounded))
	}
	if s.state.Feature() >= log.FeatureContained && len(encoded) > log.MaxResultBytes {
		t.Fatalf("a result of %d bytes", len(encoded))
	}
}

// checkEvents: each event is read as it was written.
func checkEvents(t *testing.T, s *bare) {
	t.Helper()
	for seq := s.ring.First; s.ring.Has(seq); seq++ {
		encoded := s.ring.At(seq).Bytes
		e, err := log.DecodeEvent(encoded)
		if err != nil {
			t.Fatalf("event %d: %v", seq, err)
		}
		if again, err := log.NewEncoder().Event(e); err != nil || !bytes.Equal(again, encoded) {
			t.Fatalf("event %d is written as %x, %v, and was %x", seq, again, err, encoded)
		}
	}
}
