package archive

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"rutter/log"
)

var add = flag.Bool("add", false, "write golden files that are missing")

// example is a log of three entries from a floor on, whose hash is known.
func example(t testing.TB, floor log.Seq) (Header, []log.Entry) {
	t.Helper()
	h := Header{Cluster: log.UUID{1, 2, 3}, Floor: floor, Anchor: floor}
	if floor > 0 {
		h.Chain = log.Hash{9, 9}
	}
	var entries []log.Entry
	hash := h.Chain
	for i := range 3 {
		tag := &log.NICTag{Name: "external", MTU: 1500 + uint32(i)}
		b, err := log.NewEncoder().Event(&log.Event{Kind: log.KindNICTag, Action: log.Update, ID: "external", Revision: 2, Time: 1e18, Actor: "napi", Object: tag})
		if err != nil {
			t.Fatal(err)
		}
		seq := floor + 1 + log.Seq(i)
		hash = hash.Next(seq, b)
		entries = append(entries, log.Entry{Seq: seq, Hash: hash, Bytes: b})
	}
	return h, entries
}

func write(t testing.TB, h Header, entries []log.Entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, h)
	for _, e := range entries {
		if err == nil {
			err = w.Append(e)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func read(b []byte) (entries []log.Entry, err error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return entries, err
		}
		entries = append(entries, e)
	}
}

func TestGolden(t *testing.T) {
	h, entries := example(t, 41)
	got := hex.EncodeToString(write(t, h, entries)) + "\n"
	want, err := os.ReadFile("testdata/archive-v1.hex")
	if os.IsNotExist(err) && *add {
		want, err = []byte(got), os.WriteFile("testdata/archive-v1.hex", []byte(got), 0o644)
	}
	if err != nil || string(want) != got {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, floor := range []log.Seq{0, 41} {
		h, entries := example(t, floor)
		if floor > 0 { // as a server tells it: anchored at the first entry, prefixes only
			h.Anchor, h.Chain = entries[0].Seq, entries[0].Hash
		}
		short := make([]log.Entry, len(entries))
		for i, e := range entries {
			p := e.Hash.Prefix()
			short[i] = log.Entry{Seq: e.Seq, Bytes: e.Bytes}
			copy(short[i].Hash[:], p[:])
		}
		got, err := read(write(t, h, short))
		if err != nil || len(got) != len(entries) {
			t.Fatalf("floor %d: %d entries, %v", floor, len(got), err)
		}
		for i, e := range got {
			if e.Seq != entries[i].Seq || e.Hash != entries[i].Hash || !bytes.Equal(e.Bytes, entries[i].Bytes) {
				t.Errorf("entry %d: %v, want %v", i, e, entries[i])
			}
		}
	}
}

// No flipped bit and no cut goes unnoticed.
func TestDamageIsFound(t *testing.T) {
	h, entries := example(t, 0)
	whole := write(t, h, entries)
	for i := range whole {
		for _, bit := range []byte{1, 0x80} {
			bad := bytes.Clone(whole)
			bad[i] ^= bit
			if _, err := read(bad); err == nil {
				t.Fatalf("bit %x of byte %d flipped: not noticed", bit, i)
			}
		}
		if _, err := read(whole[:i]); err == nil {
			t.Fatalf("cut off after %d bytes: not noticed", i)
		}
	}
	if _, err := read(append(bytes.Clone(whole), 0)); err == nil {
		t.Error("a byte behind the end: not noticed")
	}
}

func TestRefuses(t *testing.T) {
	if _, err := read([]byte("PK\x03\x04")); !errors.Is(err, log.ErrFormat) || !strings.Contains(err.Error(), "rutter log export") {
		t.Errorf("another file: %v", err)
	}
	h, entries := example(t, 0)
	w, err := NewWriter(io.Discard, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(entries[1]); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("a gap: %v", err)
	}
	entries[0].Hash[0]++
	if err := w.Append(entries[0]); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("a hash that does not fit: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	h, entries := example(f, 0)
	f.Add(write(f, h, entries))
	h, entries = example(f, 41)
	f.Add(write(f, h, entries))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := read(b)
		if err != nil {
			return
		}
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if again := write(t, r.Header(), entries); len(again) > len(b) {
			t.Errorf("%d entries are written in %d bytes, and were read of %d", len(entries), len(again), len(b))
		}
	})
}
