package raftstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/digest"
	"rutter/raftstore/internal/metarow"
	"rutter/raftstore/internal/notify"
)

// Servers compare the digests of their states at equal raft indexes (SAFETY P5). Each
// server asks all others and judges itself. If all are equal, it serves. If one differs,
// it serves only if a majority of the voters has the same state as itself. So the
// minority stops serving; without a majority all servers stop.

// pointVersion names what a digest is taken over. Digests of different versions are not
// compared.
const pointVersion = 1

// pointAnswer is | version (1) | highest command (1) | index (8) | seq (8) | digest (16) |.
const pointAnswer = 2 + 8 + 8 + 16

// Compared is the result of comparing this server with another one.
type Compared struct {
	ID      string    `json:"id"`
	Index   uint64    `json:"raft_index,omitempty"` // at which both were compared; 0: they were not
	Seq     log.Seq   `json:"seq,omitempty"`        // of the other server at Index
	Differs bool      `json:"differs"`
	Error   string    `json:"error,omitempty"` // why the other server could not be asked
	At      time.Time `json:"at"`
	voter   bool
	knows   byte // the highest command that the other server knows; 0 if it could not be asked
}

// comparison compares this server with the others, in rounds, and holds the result of the
// last round.
type comparison struct {
	cfg      *Config
	logger   *slog.Logger
	counters *counters
	// rebuilding reports whether this server's state is being replaced.
	rebuilding func() bool
	wake       func() // wakes the readers
	// callPeer sends a request to another server: see endpoint.
	callPeer func(ctx context.Context, address string, kind byte, payload []byte) ([]byte, error)

	points points // of this server

	refusal atomic.Pointer[error] // why nothing is served; nil if this server serves

	round notify.Turn // held during a round
	// since is the lowest raft index at which a server differed, as long as this server
	// refuses. Agreement at a lower index proves nothing.
	since uint64

	mu     sync.Mutex
	others []Compared
}

// Serving returns nil, or an error that wraps ErrDiverged while this server's state must
// not be shown to any client. It costs an atomic read. Propose, Entries, CheckCursor and
// Consistent call it themselves; View does not.
func (s *Store) Serving() error { return s.comparison.serving() }

// serving is Store.Serving.
func (q *comparison) serving() error { return errorIn(&q.refusal) }

// becomeRefusing stops serving because of err.
func (q *comparison) becomeRefusing(err error) {
	if old := q.refusal.Swap(&err); old == nil || (*old).Error() != err.Error() {
		q.counters.differences.Add(1)
		q.logger.Error("nothing is served by this server", "error", err)
	}
	q.wake()
}

// becomeServing starts serving again.
func (q *comparison) becomeServing() {
	if q.refusal.Swap(nil) != nil {
		q.logger.Info("this server agrees with the others again")
		q.wake()
	}
}

// answerPoint returns the newest point at or below the index that a peer asks for.
func (q *comparison) answerPoint(payload []byte) ([]byte, error) {
	if len(payload) != 8 {
		return nil, fmt.Errorf("request for a point has %d bytes, want 8", len(payload))
	}
	at := q.points.upTo(binary.BigEndian.Uint64(payload))
	b := []byte{pointVersion, command.Highest}
	b = binary.BigEndian.AppendUint64(b, at.index)
	b = binary.BigEndian.AppendUint64(b, uint64(at.seq))
	return append(b, at.digest.Bytes()...), nil
}

// askPoint compares this server with another one.
func (q *comparison) askPoint(ctx context.Context, to raft.Server) Compared {
	c := Compared{ID: string(to.ID), voter: to.Suffrage == raft.Voter, At: q.cfg.Now()}
	ctx, cancel := context.WithTimeout(ctx, q.cfg.CompareEvery)
	defer cancel()
	newest := q.points.upTo(^uint64(0))
	answer, err := q.callPeer(ctx, string(to.Address), askPoint, changesdb.SeqKey(log.Seq(newest.index)))
	if err == nil && len(answer) < pointAnswer {
		err = fmt.Errorf("answer of %d bytes", len(answer))
	}
	if err != nil {
		c.Error = err.Error()
		return c
	}
	r := metarow.Reader{Rest: answer}
	version := r.Take(1)[0]
	c.knows = r.Take(1)[0]
	if version != pointVersion {
		c.Error = fmt.Sprintf("its digests are of version %d, this server's of %d", version, pointVersion)
		return c
	}
	theirs := point{index: r.U64(), seq: log.Seq(r.U64()), digest: digest.Sum{r.U64(), r.U64()}}
	ours := q.points.upTo(theirs.index)
	if theirs.index == 0 || ours.index != theirs.index {
		c.Error = "no raft index that both remember"
		return c
	}
	c.Index, c.Seq, c.Differs = theirs.index, theirs.seq, ours.digest != theirs.digest
	return c
}

// compare runs one round: it asks all other members, and judges this server by the
// answers.
func (q *comparison) compare(ctx context.Context, r *raft.Raft) {
	q.round.Lock()
	defer q.round.Unlock()
	members := r.GetConfiguration().Configuration().Servers
	voting := false
	var others []raft.Server
	for _, m := range members {
		if string(m.ID) != q.cfg.ID {
			others = append(others, m)
		} else if m.Suffrage == raft.Voter {
			voting = true
		}
	}
	found := make([]Compared, len(others))
	var wg sync.WaitGroup
	for i, m := range others {
		wg.Go(func() { found[i] = q.askPoint(ctx, m) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return
	}
	q.mu.Lock()
	q.others = found
	q.mu.Unlock()
	q.counters.comparisons.Add(1)
	if q.rebuilding() {
		return
	}
	for _, c := range found {
		if since := q.since; c.Differs && (since == 0 || c.Index < since) {
			q.since = c.Index
		}
	}
	backed, err := judge(found, voting, q.since)
	if err != nil {
		q.becomeRefusing(err)
		return
	}
	if backed {
		q.becomeServing()
	}
	if q.serving() == nil {
		q.since = 0
	}
}

// judge reports whether a server may serve, given what it found and whether it votes
// itself. A server that stopped serves again only if it is backed: a majority of the
// voters has the same state, at the raft index since which a server differs or later.
func judge(found []Compared, voting bool, since uint64) (backed bool, err error) {
	voters, agree := 0, 0
	if voting {
		voters, agree = 1, 1
	}
	var differ []string
	for _, c := range found {
		if c.Differs {
			differ = append(differ, fmt.Sprintf("%s at raft index %d", c.ID, c.Index))
		}
		if !c.voter {
			continue
		}
		voters++
		if c.Index > 0 && c.Index >= since && !c.Differs {
			agree++
		}
	}
	backed = agree > voters/2
	if len(differ) == 0 || backed {
		return backed, nil
	}
	return false, fmt.Errorf("%w: %v; %d of %d voters have what this one has: rebuild the servers that are wrong from one that is right", ErrDiverged, differ, agree, voters)
}

// runCompare runs a round each Config.CompareEvery, until ctx is done.
func (q *comparison) runCompare(ctx context.Context, r *raft.Raft) {
	tick := time.NewTicker(q.cfg.CompareEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			q.compare(ctx, r)
		case <-ctx.Done():
			return
		}
	}
}

// compared returns the results of the last round.
func (q *comparison) compared() []Compared {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]Compared(nil), q.others...)
}

// allKnow reports whether all other members have reported that they know a command.
func (q *comparison) allKnow(command byte, members []raft.Server) bool {
	knows := make(map[string]byte)
	for _, c := range q.compared() {
		knows[c.ID] = c.knows
	}
	for _, m := range members {
		if string(m.ID) != q.cfg.ID && knows[string(m.ID)] < command {
			return false
		}
	}
	return true
}

// pointsKept is how many of the newest points a server remembers. A healthy follower is
// fewer raft entries behind.
const pointsKept = 4096

// point is the digest after the raft entry of an index.
type point struct {
	index  uint64
	seq    log.Seq
	digest digest.Sum
}

// points holds the digests after the newest raft entries, to compare servers at equal
// indexes.
type points struct {
	mu   sync.Mutex
	ring [pointsKept]point
	n    uint64 // points ever pushed since the last reset
}

func (p *points) push(h *changesdb.Head) {
	at := point{h.Command, h.Seq, h.Digest()}
	p.mu.Lock()
	p.ring[p.n%pointsKept] = at
	p.n++
	p.mu.Unlock()
}

// reset drops all points, and begins with the digest of h.
func (p *points) reset(h *changesdb.Head) {
	p.mu.Lock()
	p.n = 0
	p.mu.Unlock()
	if h.Command > 0 {
		p.push(h)
	}
}

// Point is a place of raft's log that this server's state has reached, with the digest of what
// the server holds there: head, chain hash, objects and the window of change ids. Servers that
// know the same must have the same digest at the same index.
type Point struct {
	Index  uint64 // raft's
	Seq    log.Seq
	Digest [16]byte
}

// Points returns the newest points above a raft index, in order: at most as many as a server
// remembers to compare itself with others.
func (s *Store) Points(after uint64) []Point {
	p := &s.comparison.points
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Point
	for i := p.n - min(p.n, pointsKept); i < p.n; i++ {
		if at := p.ring[i%pointsKept]; at.index > after {
			all = append(all, Point{at.index, at.seq, [16]byte(at.digest.Bytes())})
		}
	}
	return all
}

// upTo returns the newest point at or below index; the zero point if there is none.
func (p *points) upTo(index uint64) point {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := uint64(1); i <= min(p.n, pointsKept); i++ {
		if at := p.ring[(p.n-i)%pointsKept]; at.index <= index {
			return at
		}
	}
	return point{}
}
