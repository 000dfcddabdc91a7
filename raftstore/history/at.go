package history

import (
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/changesdb"
)

// The log consists of stretches within which times do not go back. Each event of the
// setting projections.SettingClusterTime begins one.

// mendRef is the reference of that setting.
var mendRef = Ref{log.KindSetting, projections.SettingClusterTime}

// mends returns the seqs after low, up to high, of the events that set the log's
// time, in order.
func (p *past) mends(low, high log.Seq) ([]log.Seq, error) {
	if err := p.resolve(mendRef); err != nil || p.known[mendRef] == nil {
		return nil, err // the setting is never deleted, so it was never set
	}
	return p.history(mendRef, low+1, high)
}

// positionAt returns the last entry after the seq low that is not after a time; low if there
// is none. It searches the newest stretch that had begun at that time. Entries that were
// stamped with wrong times, before the time was set back, are found only by their seq. A
// row that cannot be read counts as young.
func (p *past) positionAt(low log.Seq, at log.Time) (log.Seq, error) {
	high := p.head.Seq
	mends, err := p.mends(low, high)
	if err != nil {
		return 0, err
	}
	for i := len(mends) - 1; i >= 0; i-- {
		begun, err := changesdb.TimeOf(p.tx, mends[i], high)
		if err != nil {
			return 0, err
		}
		if begun <= at {
			return changesdb.LastBefore(p.tx, mends[i]-1, high, at), nil
		}
		high = mends[i] - 1
	}
	return changesdb.LastBefore(p.tx, low, high, at), nil
}

// seqAt returns the last entry that is not after a time: see positionAt. A time before that
// of the floor is refused, because the state then is not known. mended says that the
// log's time may have been set; if false, the search for such events is left out.
func seqAt(ctx context.Context, tx *bbolt.Tx, c *blocks, at log.Time, mended bool) (log.Seq, error) {
	h, _, err := changesdb.ReadMeta(tx)
	if err != nil || h.Seq == h.Floor {
		return h.Floor, err
	}
	var seq log.Seq
	if mended {
		var p *past
		if p, err = newPastReader(ctx, tx, c, h.Seq); err == nil {
			seq, err = p.positionAt(h.Floor, at)
		}
	} else {
		seq = changesdb.LastBefore(tx, h.Floor, h.Seq, at)
	}
	if err == nil && seq == h.Floor && h.Floor > 0 {
		return 0, fmt.Errorf("%s is before the entries that are kept, after seq %d: %w", at, h.Floor, log.ErrCompacted)
	}
	return seq, err
}
