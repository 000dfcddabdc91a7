package logread_test

import (
	"fmt"
	"testing"

	"rutter/api/internal/apitest"
	"rutter/api/internal/logread"
	"rutter/log"
)

// filled is a store with n entries.
func filled(t apitest.T, n int) *apitest.Memory {
	m := apitest.NewMemory()
	for i := range n {
		m.Tag(t, fmt.Sprintf("tag%d", i))
	}
	return m
}

// All readers share an entry, its frame and its line.
func TestReadersShareEntries(t *testing.T) {
	tail := logread.NewTail(filled(t, 10))
	first, err := tail.After(4)
	if err != nil || len(first) != 6 {
		t.Fatalf("%d entries, %v; want 6", len(first), err)
	}
	second, err := tail.After(4)
	if err != nil || second[0] != first[0] {
		t.Errorf("the second reader has another entry, %v", err)
	}
	a, err := first[0].Frame()
	if err != nil {
		t.Fatal(err)
	}
	b, err := second[0].Frame()
	if err != nil || &a[0] != &b[0] {
		t.Errorf("the second reader has another frame, %v", err)
	}
}

// A position is of one log, and is checked after each read.
func TestPositionOfAnotherLog(t *testing.T) {
	m := filled(t, 10)
	known := logread.PositionAfter(m, 10)
	bare := logread.PositionAfter(m, 4)
	if !known.Known || bare.Known {
		t.Errorf("known %v and %v, want the head's chain only", known.Known, bare.Known)
	}
	if known.Check(m) != nil || bare.Check(m) != nil {
		t.Error("positions of this log are refused")
	}
	m.Replace(t, log.UUID{1}, 0, 12)
	if known.Check(m) == nil || bare.Check(m) == nil {
		t.Error("positions of another log are taken")
	}
}

// One frame for all subscribers, against one for each.
func BenchmarkFrame(b *testing.B) {
	entries, err := filled(b, 1).Entries(0, 1)
	if err != nil {
		b.Fatal(err)
	}
	shared, err := logread.Decode(entries[0])
	if err != nil {
		b.Fatal(err)
	}
	b.Run("shared", func(b *testing.B) {
		for b.Loop() {
			if _, err := shared.Frame(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("each", func(b *testing.B) {
		for b.Loop() {
			one, err := logread.Decode(entries[0])
			if err == nil {
				_, err = one.Frame()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
