package checked

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"rutter/log"
)

// TestSealedValues: what was sealed is opened, damage is found, and what is
// older passes.
func TestSealedValues(t *testing.T) {
	t.Parallel()
	key := []byte("LastVoteCand")
	for _, value := range []string{"", "wal", "boltdb", "10.0.0.1:7421", "\x00\x00\x00\x00\x00\x00\x00\x07"} {
		sealed := Seal(key, []byte(value))
		if got, err := Open(key, sealed); err != nil || string(got) != value {
			t.Errorf("%q: %q, %v", value, got, err)
		}
		if got, err := Open(key, []byte(value)); err != nil || string(got) != value {
			t.Errorf("%q without a checksum: %q, %v", value, got, err)
		}
		if len(sealed) == 8 {
			continue
		}
		sealed[len(sealed)-1] ^= 1
		if _, err := Open(key, sealed); !errors.Is(err, log.ErrCorrupt) {
			t.Errorf("%q damaged: %v, want ErrCorrupt", value, err)
		}
	}
}

// TestDamagedEntries: what was stored is read as it was, without a trace of the checksum;
// a changed entry, and one in the place of another, is found; one without a checksum
// passes.
func TestDamagedEntries(t *testing.T) {
	t.Parallel()
	below := raft.NewInmemStore()
	logs := Log{LogStore: below}
	entry := &raft.Log{Index: 3, Term: 2, Type: raft.LogCommand, Data: []byte("data")}
	if err := logs.StoreLog(entry); err != nil {
		t.Fatal(err)
	}
	var got raft.Log
	if err := logs.GetLog(3, &got); err != nil || string(got.Data) != "data" || got.Extensions != nil || entry.Extensions != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	var stored raft.Log
	if err := below.GetLog(3, &stored); err != nil {
		t.Fatal(err)
	}
	bare := raft.Log{Index: 4, Term: 2, Data: []byte("of an older program")}
	if err := below.StoreLog(&bare); err != nil {
		t.Fatal(err)
	}
	if err := logs.GetLog(4, &got); err != nil {
		t.Errorf("without a checksum: %v", err)
	}
	for what, damage := range map[string]func(*raft.Log){
		"data":     func(e *raft.Log) { e.Data = []byte("dbta") },
		"term":     func(e *raft.Log) { e.Term++ },
		"type":     func(e *raft.Log) { e.Type = raft.LogBarrier },
		"checksum": func(e *raft.Log) { e.Extensions = []byte{1, 0, 0, 0, 0} },
		"version":  func(e *raft.Log) { e.Extensions = append([]byte{2}, e.Extensions[1:]...) },
	} {
		damaged := stored
		damage(&damaged)
		if err := below.StoreLog(&damaged); err != nil {
			t.Fatal(err)
		}
		if err := logs.GetLog(3, new(raft.Log)); !errors.Is(err, log.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", what, err)
		}
	}
	if err := (Log{LogStore: misplaced{below}}).GetLog(3, new(raft.Log)); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("another entry in its place: %v, want ErrCorrupt", err)
	}
}

// misplaced is a log store that has each entry one place too early.
type misplaced struct{ raft.LogStore }

func (m misplaced) GetLog(index uint64, entry *raft.Log) error {
	return m.LogStore.GetLog(index+1, entry)
}

// TestVerify: what follows the marker must be there without a gap, and what it covers
// need not.
func TestVerify(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		indexes []uint64
		marker  uint64
		ok      bool
	}{
		{"empty", nil, 7, true},
		{"whole", []uint64{1, 2, 3}, 0, true},
		{"behind the marker", []uint64{4, 5}, 3, true},
		{"a gap below the marker", []uint64{2, 4, 5}, 3, true},
		{"a gap above the marker", []uint64{2, 3, 5}, 3, false},
		{"begins too late", []uint64{5, 6}, 3, false},
	} {
		below := raft.NewInmemStore()
		for _, index := range test.indexes {
			if err := below.StoreLog(&raft.Log{Index: index}); err != nil {
				t.Fatal(err)
			}
		}
		if err := Verify(below, test.marker); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
