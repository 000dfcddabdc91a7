package applycmd

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"rutter/log"
)

// changeRoom is how many bytes of a change are left for what servers stamp: who asked,
// when, and the content's digest. They take less than 1 KiB.
const changeRoom = 4 << 10

// block is operations that must be in one change: those from the first to the last one of
// an object that is deleted and made again.
type block struct{ from, to int }

// blocks returns the blocks of n operations, in their order. together are the places of
// the operations of each object.
func blocks(n int, together [][]int) []block {
	end := make([]int, n) // of the block that begins at a place, at least
	for i := range end {
		end[i] = i + 1
	}
	for _, places := range together {
		if len(places) > 0 {
			first, last := slices.Min(places), slices.Max(places)
			end[first] = max(end[first], last+1)
		}
	}
	var all []block
	for from := 0; from < n; {
		to := end[from]
		for i := from; i < to; i++ {
			to = max(to, end[i])
		}
		all = append(all, block{from, to})
		from = to
	}
	return all
}

// pack puts operations into as few changes as the limits of a change allow, in their order.
// The changes have no ids. An error names the operation with which a block is too large.
func pack(ops []log.Op, together [][]int) ([]*log.Change, error) {
	sizes := make([]size, len(ops))
	encoder := log.NewEncoder()
	for i := range ops {
		b, err := encoder.Change(&log.Change{Ops: ops[i : i+1]})
		if err != nil {
			return nil, fmt.Errorf("%s %s %s: %w", ops[i].Action, ops[i].Kind, idOf(&ops[i]), err)
		}
		sizes[i] = size{1, len(b), log.IDHeaderBytes + len(idOf(&ops[i]))}
	}
	var changes []*log.Change
	var held size
	for _, b := range blocks(len(ops), together) {
		var more size
		for _, s := range sizes[b.from:b.to] {
			more = more.plus(s)
		}
		if !more.fits() {
			op := &ops[b.from]
			return nil, fmt.Errorf("%s %s %s and %d operations that must be one change with it are more than a change may be (%d operations, %d bytes); apply a part of the documents first",
				op.Action, op.Kind, idOf(op), b.to-b.from-1, log.MaxOps, log.MaxChangeBytes)
		}
		if len(changes) == 0 || !held.plus(more).fits() {
			changes, held = append(changes, &log.Change{}), size{}
		}
		held = held.plus(more)
		last := changes[len(changes)-1]
		last.Ops = append(last.Ops, ops[b.from:b.to]...)
	}
	return changes, nil
}

// size is what operations take of the limits of a change.
type size struct{ ops, bytes, result int }

func (s size) plus(t size) size { return size{s.ops + t.ops, s.bytes + t.bytes, s.result + t.result} }

func (s size) fits() bool {
	return s.ops <= log.MaxOps && s.bytes <= log.MaxChangeBytes-changeRoom && s.result <= log.MaxResultBytes-log.EmptyResultBytes
}

// idOf returns the id of an operation's object; "" if the servers choose it.
func idOf(op *log.Op) string {
	if op.ID == "" && op.Object != nil {
		return op.Object.ID()
	}
	return op.ID
}

// idHour is how long the same operations get the same id of a change. Ids are remembered
// by the servers for longer.
const idHour = time.Hour

// identify gives changes ids that follow from what they do, and from the hour: a second run
// of a command that was killed, or that does not know what became of a change, sends the
// same ids, and the servers do once what was sent twice.
func identify(changes []*log.Change, now time.Time) error {
	encoder := log.NewEncoder()
	for i, c := range changes {
		c.ID = log.UUID{}
		b, err := encoder.Change(c)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(append(fmt.Appendf(nil, "rutter apply %d\n", i), b...))
		id := log.UUID(sum[:16])
		var at [8]byte
		binary.BigEndian.PutUint64(at[:], uint64(now.Truncate(idHour).UnixMilli()))
		copy(id[:6], at[2:]) // RFC 9562 section 5.7
		id[6] = 0x70 | id[6]&0x0f
		id[8] = 0x80 | id[8]&0x3f
		c.ID = id
	}
	return nil
}
