package liveness

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"rutter/log"
)

// A CN without a Rutter agent posts heartbeats to any server (CNAPI's, spec/cnapi.md
// §4.1). A heartbeat proves only that the CN was present when it came. So a server
// keeps none. It sends each to the leader, with its age, and only the leader has a view
// of them. A server that a CN has left has no heartbeat to report and cannot set the CN
// unknown: the fault of §4.2 cannot occur.
const (
	// BeatHolds is how long a heartbeat counts: CNAPI's time (spec/cnapi.md §4.2).
	BeatHolds = 11 * time.Second
	// AnnounceHolds is how long the sysinfo of a CN that is not set up counts,
	// which comes each 60 s (spec/cnapi.md §4.1).
	AnnounceHolds = 90 * time.Second
	// MaxBeats bounds the heartbeats that a server holds for the leader, one for each
	// CN, and those that the leader remembers. More are dropped: the CN sends another.
	MaxBeats = 1 << 16
	// beatBatch bounds those of one question to the leader.
	beatBatch = 4096
	// beatGather is how long the first heartbeat of a batch waits for others.
	beatGather = 50 * time.Millisecond
	// beatBytes is the size of a heartbeat in a request: the CN (16), its age and how
	// long it holds, in milliseconds (4 each).
	beatBytes = 24
)

// beat is one heartbeat that a server has received.
type beat struct {
	at    time.Time
	holds time.Duration
}

// beats are those that wait to be sent. The newest of a CN is kept.
type beats struct {
	mu      sync.Mutex // protects waiting
	waiting map[log.UUID]beat
	due     chan struct{} // holds a token while there are some
}

func newBeats() *beats {
	return &beats{waiting: make(map[log.UUID]beat), due: make(chan struct{}, 1)}
}

// put notes a heartbeat; it is false if there is no room.
func (b *beats) put(cn log.UUID, one beat) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, there := b.waiting[cn]
	if !there && len(b.waiting) >= MaxBeats {
		return false
	}
	if !there || was.at.Before(one.at) {
		b.waiting[cn] = one
	}
	wakeOnce(b.due)
	return true
}

// wakeOnce leaves a token in a channel that holds one.
func wakeOnce(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take removes up to beatBatch of them.
func (b *beats) take() map[log.UUID]beat {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch := make(map[log.UUID]beat, min(len(b.waiting), beatBatch))
	for cn, one := range b.waiting {
		if len(batch) == beatBatch {
			wakeOnce(b.due)
			break
		}
		batch[cn] = one
		delete(b.waiting, cn)
	}
	return batch
}

// Beat records that a CN is present now, which counts for holds: BeatHolds or
// AnnounceHolds. The leader gets it soon. It returns false if too many wait.
func (f *Fabric) Beat(cn log.UUID, holds time.Duration) bool {
	return f.beats.put(cn, beat{f.cfg.Now(), holds})
}

// carry sends heartbeats to the leader until ctx ends.
func (f *Fabric) carry(ctx context.Context) {
	for {
		select {
		case <-f.beats.due:
		case <-ctx.Done():
			return
		}
		pause(ctx, beatGather)
		batch := f.beats.take()
		if err := f.bring(ctx, batch); err != nil {
			for cn, one := range batch { // a newer one may have come meanwhile
				if f.cfg.Now().Sub(one.at) < one.holds {
					f.beats.put(cn, one)
				}
			}
			f.cfg.Logger.Debug("heartbeats are not with the leader yet", "cns", len(batch), "error", err)
			pause(ctx, askAgain)
		}
	}
}

func (f *Fabric) bring(ctx context.Context, batch map[log.UUID]beat) error {
	if len(batch) == 0 {
		return nil
	}
	request := binary.BigEndian.AppendUint32([]byte{askBeats}, uint32(len(batch)))
	now := f.cfg.Now()
	for cn, one := range batch {
		request = append(request, cn[:]...)
		request = binary.BigEndian.AppendUint32(request, milliseconds(now.Sub(one.at)))
		request = binary.BigEndian.AppendUint32(request, milliseconds(one.holds))
	}
	request = append(request, f.cfg.Peers.Self()...)
	if f.current() != nil {
		_, err := f.answerBeats(request[1:])
		return err
	}
	asking, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	_, err := f.cfg.Peers.Ask(asking, "", request)
	return err
}

// answerBeats takes heartbeats from a server: their number (4), the heartbeats, and the
// server's id.
func (f *Fabric) answerBeats(body []byte) ([]byte, error) {
	r := f.current()
	if r == nil {
		return nil, ErrNoLeader
	}
	if len(body) < 4 {
		return nil, fmt.Errorf("liveness: heartbeats in %d bytes: %w", len(body), log.ErrFormat)
	}
	n := binary.BigEndian.Uint32(body)
	if body = body[4:]; n > beatBatch || len(body) < int(n)*beatBytes {
		return nil, fmt.Errorf("liveness: %d heartbeats in %d bytes: %w", n, len(body), log.ErrFormat)
	}
	server := string(body[int(n)*beatBytes:])
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for i := range int(n) {
		row := body[i*beatBytes:]
		age := time.Duration(binary.BigEndian.Uint32(row[16:])) * time.Millisecond
		holds := time.Duration(binary.BigEndian.Uint32(row[20:])) * time.Millisecond
		r.beat(log.UUID(row[:16]), server, now-age, min(holds, AnnounceHolds))
	}
	return nil, nil
}

// lastBeats is what the leader remembers of a CN's heartbeats; all times are steady.
type lastBeats struct {
	at     time.Duration // of the newest
	until  time.Duration // it counts
	since  time.Duration // since when the CN is present without a gap
	server string        // the server that reported the newest
}

// beat notes a heartbeat of the steady time at. The caller holds the lock.
func (r *leaderTerm) beat(cn log.UUID, server string, at, holds time.Duration) {
	b := r.beats[cn]
	switch {
	case b == nil && len(r.beats) >= MaxBeats:
		return
	case b == nil:
		b = &lastBeats{at: at, since: at}
		r.beats[cn] = b
	case at < b.at:
		return // an older one that took longer
	case at > b.until:
		b.since = at
	}
	b.at, b.server = at, server
	b.until = max(b.until, at+holds)
}

// forgetBeats drops those of CNs that do not run and have been silent for long.
// The caller holds the lock.
func (r *leaderTerm) forgetBeats(now time.Duration, recorded map[log.UUID]string) {
	for cn, b := range r.beats {
		if recorded[cn] != running && now > b.until+r.cfg.Lease {
			delete(r.beats, cn)
		}
	}
}
