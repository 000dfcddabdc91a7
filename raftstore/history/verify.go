package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/readahead"
	"rutter/raftstore/internal/window"
)

// Verified is the result of Folder.Verify.
type Verified struct {
	Head        log.Cursor `json:"head"`
	Chain       log.Hash   `json:"chain,omitzero"` // the whole hash at the head
	Floor       log.Seq    `json:"floor"`
	Events      uint64     `json:"events"`
	Objects     int        `json:"objects"`
	Checkpoints int        `json:"checkpoints"`
	Blocks      int        `json:"index_blocks"`
	Changes     int        `json:"changes"`
	Problems    []Finding  `json:"problems"`
}

// Finding is one fault that Verify found.
type Finding struct {
	Seq    log.Seq `json:"seq,omitempty"` // the first entry that it concerns
	What   string  `json:"what"`
	Remedy string  `json:"remedy"`
}

// Remedies of findings, and their bound.
const (
	remedyServer = "rutter cluster rebuild takes this server's state from the others; alone, restore a snapshot"
	remedyIndex  = "the log itself is whole: rutter log replay makes a folder with a new index and new checkpoints"
	// maxFindings bounds a report: the first findings show what is wrong.
	maxFindings = 100
)

// verifier reads the events once, and folds them.
type verifier struct {
	ctx      context.Context
	tx       *bbolt.Tx
	head     changesdb.Head
	state    *projections.State
	whole    []log.Seq // checkpoints still to be compared
	result   *Verified
	progress changesdb.Progress
}

// Verify checks everything: each row's checksum, the chain of all entries, the index, the
// dedupe window, and that the objects and each checkpoint are what the replay of the
// entries gives. The result lists what is wrong. An error means that Verify could not go
// on. It needs as much memory as a server.
func (f *Folder) Verify(ctx context.Context, progress changesdb.Progress) (*Verified, error) {
	v := &verifier{ctx: ctx, state: projections.NewState(), head: f.head, progress: progress}
	v.result = &Verified{Head: f.Head(), Chain: f.head.Hash, Floor: f.head.Floor}
	err := f.view(func(tx *bbolt.Tx) error {
		v.tx = tx
		return v.all()
	})
	if errors.Is(err, log.ErrCorrupt) || errors.Is(err, log.ErrFormat) {
		v.found(0, remedyServer, "%v", err)
		err = nil
	}
	return v.result, err
}

func (v *verifier) found(seq log.Seq, remedy, format string, args ...any) {
	if len(v.result.Problems) < maxFindings {
		v.result.Problems = append(v.result.Problems, Finding{seq, fmt.Sprintf(format, args...), remedy})
	}
}

func (v *verifier) all() error {
	v.whole, _ = changesdb.Checkpoints(v.tx)
	v.result.Checkpoints = len(v.whole)
	err := v.tx.Bucket(window.BucketChanges).ForEach(func(key, row []byte) error {
		v.result.Changes++
		_, _, err := window.ReadChangeRow(key, row)
		return err
	})
	if err == nil {
		err = v.window()
	}
	if err != nil {
		v.found(0, remedyServer, "%v", err)
	}
	replayed, err := v.replay()
	if err != nil {
		return err
	}
	if replayed {
		// Objects that events after Head.Rows name are taken from these events.
		later, err := changesdb.Touched(v.tx, v.head.Rows, v.head.Seq)
		if err != nil {
			return err
		}
		v.compare("objects", v.tx.Bucket(changesdb.BucketObjects), v.head.Seq, later, remedyServer)
		if v.head.Summed && changesdb.StateSum(v.state) != v.head.StateSum {
			v.found(v.head.Seq, remedyServer, "the digest of the objects is not that of the replay")
		}
	}
	v.result.Objects = v.state.Len()
	return v.index()
}

// window compares the dedupe window with the digest that was written with it, because a
// missing row, or a missing low-water mark of an author, has no checksum that could show
// it.
func (v *verifier) window() error {
	w, err := window.Load(v.tx, 0, 0, v.head.ForWindow())
	if err == nil && v.head.Summed && w.Digest() != v.head.WindowSum {
		err = fmt.Errorf("changes.db: change ids are not those that were written: %w", log.ErrCorrupt)
	}
	return err
}

// replay folds the events, and reports whether it reached the head.
func (v *verifier) replay() (bool, error) {
	first := changesdb.FirstEvent(v.tx, &v.head)
	hash, known := log.Hash{}, first == 1
	if first > 1 {
		if len(v.whole) == 0 || v.whole[0]+1 < first {
			v.found(first, remedyServer, "the events begin at %d, and no checkpoint lies right before: nothing can be replayed", first)
			return false, nil
		}
		// Of entries before the checkpoint only the chain is checked.
		if _, err := changesdb.LoadCheckpoint(v.tx, v.whole[0], v.state); err != nil {
			v.found(v.whole[0], remedyServer, "%v", err)
			return false, nil
		}
	}
	from := log.Seq(0)
	if first > 1 {
		from = v.whole[0]
	}
	if first == v.head.Floor+1 {
		hash, known = v.head.FloorHash, true
	}
	cursor := v.tx.Bucket(changesdb.BucketEvents).Cursor()
	want, next := first, readahead.Ahead{}
	for key, row := cursor.Seek(changesdb.SeqKey(first)); want <= v.head.Seq; key, row = cursor.Next() {
		next.Row(row)
		s, err := changesdb.ReadEvent(want, key, row)
		if err != nil {
			v.found(want, remedyServer, "%v", err)
			return false, nil
		}
		if known && hash.Next(want, s.Bytes) != s.Hash {
			v.found(want, remedyServer, "the chain breaks at seq %d: its hash is %s and follows as %s", want, s.Hash.Prefix(), hash.Next(want, s.Bytes).Prefix())
			return false, nil
		}
		hash, known = s.Hash, true
		if want > from {
			if err := v.fold(want, s); err != nil {
				v.found(want, remedyServer, "%v", err)
				return false, nil
			}
		}
		if want == v.head.Floor && s.Hash != v.head.FloorHash {
			v.found(want, remedyServer, "the chain hash at the floor %d is not the one of the head's row", want)
		}
		v.result.Events++
		if v.result.Events%changesdb.ProgressEvery == 0 {
			if v.ctx.Err() != nil {
				return false, v.ctx.Err()
			}
			v.progress.Report(int64(want-first+1), int64(v.head.Seq-first+1))
		}
		want++
	}
	v.progress.Report(int64(v.head.Seq-first+1), int64(v.head.Seq-first+1))
	if known && hash != v.head.Hash {
		v.found(v.head.Seq, remedyServer, "the events end in chain hash %s, and the head says %s", hash.Prefix(), v.head.Hash.Prefix())
	}
	if key, _ := cursor.Last(); len(key) == 8 && log.Seq(binary.BigEndian.Uint64(key)) > v.head.Seq {
		v.found(v.head.Seq+1, remedyServer, "there is an event row %d beyond the head %d", binary.BigEndian.Uint64(key), v.head.Seq)
	}
	return true, nil
}

func (v *verifier) fold(seq log.Seq, s changesdb.Slot) error {
	s.Bytes = bytes.Clone(s.Bytes)
	e, err := s.Event()
	if err != nil {
		return err
	}
	if e.More != s.More {
		v.found(seq, remedyServer, "seq %d: its row says that %d events of its change follow, and the event %d", seq, s.More, e.More)
	}
	if was := v.state.Time(); e.Time < was && !projections.Mends(e) {
		v.found(seq, remedyServer, "seq %d: its time %s is before %s, the one before it, and nobody set it back", seq, e.Time, was)
	}
	if _, err := v.state.Apply(seq, e); err != nil {
		return err
	}
	for len(v.whole) > 0 && v.whole[0] < seq {
		v.whole = v.whole[1:]
	}
	if len(v.whole) > 0 && v.whole[0] == seq {
		v.compare("checkpoint", v.tx.Bucket(changesdb.BucketCheckpoints).Bucket(changesdb.SeqKey(seq)), seq, nil, remedyIndex)
	}
	return nil
}

// compare checks that rows are the objects of the state, except for those in but.
func (v *verifier) compare(what string, buckets *bbolt.Bucket, seq log.Seq, but map[changesdb.ObjectKey]log.Seq, remedy string) {
	n, want := 0, v.state.Len()
	for key := range but {
		if _, ok := v.state.Get(key.Kind, key.ID); ok {
			want--
		}
	}
	err := buckets.ForEachBucket(func(name []byte) error {
		kind, err := log.ParseKind(string(name))
		if err != nil {
			return err
		}
		return buckets.Bucket(name).ForEach(func(key, row []byte) error {
			if _, ok := but[changesdb.ObjectKey{Kind: kind, ID: string(key)}]; ok {
				return nil
			}
			n++
			o, revision, at, err := changesdb.ReadObject(kind, string(key), row)
			if err != nil {
				v.found(seq, remedy, "%s at %d: %v", what, seq, err)
				return nil
			}
			r, ok := v.state.Get(kind, string(key))
			switch {
			case !ok:
				v.found(at, remedy, "%s at %d: %s %s is there, and the replay has none", what, seq, kind, key)
			case r.Revision != revision || r.Seq != at || !log.Equal(r.Object, o):
				v.found(max(at, r.Seq), remedy, "%s at %d: %s %s is of revision %d (seq %d), and the replay gives revision %d (seq %d) or other fields", what, seq, kind, key, revision, at, r.Revision, r.Seq)
			}
			return nil
		})
	})
	if err != nil {
		v.found(seq, remedy, "%s at %d: %v", what, seq, err)
	}
	if n != want {
		v.found(seq, remedy, "%s at %d: %d rows, and the replay gives %d objects", what, seq, n, want)
	}
}

// index compares the stored blocks with the events.
func (v *verifier) index() error {
	index := v.tx.Bucket(bucketIndex)
	if index == nil {
		return nil
	}
	first := changesdb.FirstEvent(v.tx, &v.head)
	return index.ForEach(func(key, row []byte) error {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		if len(key) != 9 {
			v.found(0, remedyIndex, "index: key %x", key)
			return nil
		}
		segment := binary.BigEndian.Uint64(key[1:])
		from, to := log.Seq(segment*SegmentEvents)+1, log.Seq((segment+1)*SegmentEvents)
		v.result.Blocks++
		if err := checkBlock(key, row); err != nil {
			v.found(from, remedyIndex, "%v", err)
			return nil
		}
		if from < first || to > v.head.Seq {
			return nil // events of this segment are being deleted
		}
		if row[4] > indexVersion {
			return nil // a block of a newer program
		}
		b, err := makeBlock(v.tx, row[4], from, to, nil)
		if err == nil && !bytes.Equal(b.seal(key), row) {
			err = fmt.Errorf("the index of the entries %d to %d is not theirs", from, to)
		}
		if err != nil {
			v.found(from, remedyIndex, "%v", err)
		}
		return nil
	})
}
