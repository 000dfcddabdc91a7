package replayinto

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/api/client"
	"rutter/cmd/rutter/bulkwrite"
	"rutter/log"
	"rutter/projections"
)

// Source is a log that is repeated.
type Source struct {
	Cluster log.UUID
	// State are the objects that the log begins with, as of Floor; nil: there are none.
	State *projections.State
	Floor log.Seq
	// Entries are those after Floor, whole changes. Their bytes are valid until the next.
	Entries iter.Seq2[log.Entry, error]
	// Head is their last seq, for the progress; 0: it is unknown.
	Head log.Seq
}

// Options say how a log is repeated.
type Options struct {
	Map string // the file of the mappings; "": replay-SOURCE-TARGET.ndjson
	// GoOn: a change that the target refuses is recorded, and those behind it are made.
	GoOn bool
	// Wait, if not nil, is called with the time of each change before it is made, and
	// returns when it is due.
	Wait func(context.Context, log.Time) error
	// Show, if not nil, is called now and then with how many entries are settled, and how
	// many there are, or 0.
	Show func(done, all uint64)

	behindFor time.Duration // instead of the constant, in tests
}

// Outcome is what a replay did. It counts changes of the source, of which each object
// that the source begins with is one.
type Outcome struct {
	Target  log.UUID // the cluster
	Map     string   // the map file; "": there is none, because nothing was made
	Made    int
	Had     int // were made by an earlier replay
	Skipped int // are about the source itself
	Refused int // with Options.GoOn
}

// replay is one that runs.
type replay struct {
	Outcome
	api      *client.Client
	from     Source
	o        Options
	out      *bulkwrite.Writer
	maps     *mapFile
	ids      *resume
	inTarget map[changeTag]written // in the target's log, and perhaps not in maps
	scanned  log.Seq               // up to which inTarget was read
	seen     log.Seq               // the highest of the target's that is known
	pending  []pending             // not settled, in order
	settled  log.Seq               // of the source
	early    []mapping             // to write when maps is open
}

// written is where a change stands in the target's log. There may be ten million of them,
// of others most: it has what the change's tag does not say.
type written struct {
	first log.Seq
	ms    uint64 // of the id
	last  log.Seq
}

// of is the change with a tag.
func (w written) of(target log.UUID, tag changeTag) mappedChange {
	return mappedChange{Cluster: target, First: w.first, Last: w.last, ID: tag.id(w.ms)}
}

// pending is a change that was handed to the writer.
type pending struct {
	at place
	// after is a seq of the target that the change came behind.
	after log.Seq
}

// ErrSameCluster: the target is the cluster that the log is of.
var ErrSameCluster = errors.New("that is the cluster that the log is of")

// Run repeats a log in the cluster of a client. What it did until an error is done, and
// recorded: another Run goes on there.
func Run(ctx context.Context, api *client.Client, from Source, o Options) (_ Outcome, err error) {
	status, err := api.Status(ctx)
	if err != nil {
		return Outcome{}, err
	}
	r := &replay{api: api, from: from, o: o}
	if r.Target = status.Head.Cluster; r.Target == from.Cluster {
		return r.Outcome, ErrSameCluster
	}
	defer func() {
		if r.maps != nil {
			err = errors.Join(err, r.maps.close())
		}
	}()
	after := log.Seq(0)
	if !r.Target.IsZero() {
		if err := r.openMaps(); err != nil {
			return r.Outcome, err
		}
		after = r.ids.After
	}
	r.scanned = max(after, status.Floor)
	if err := r.readUpTo(ctx, status.Head.Seq); err != nil {
		return r.Outcome, err
	}
	err = r.write(ctx)
	return r.Outcome, err
}

// openMaps opens the map file and the one beside it.
func (r *replay) openMaps() (err error) {
	if r.maps, err = openMap(r.o.Map, r.from.Cluster, r.Target); err != nil {
		return err
	}
	r.Map = r.maps.name
	r.ids, err = openResume(r.maps.name, r.from.Cluster, r.Target, time.Now)
	return err
}

// Bounds of waiting for a server that is behind others.
const (
	behindPoll = 50 * time.Millisecond
	behindFor  = 30 * time.Second
)

// readUpTo is readTarget up to a seq at least: the server that answers may be behind the one
// that knew of it, and one that stays where it is for behindFor ends the replay.
func (r *replay) readUpTo(ctx context.Context, head log.Seq) error {
	since, at := time.Now(), r.scanned
	for {
		if err := r.readTarget(ctx); err != nil || r.scanned >= head {
			return err
		}
		switch {
		case r.scanned > at:
			since, at = time.Now(), r.scanned
		case time.Since(since) > r.behind():
			return fmt.Errorf("%w: a server shows entries up to seq %d of %d, and has shown no more for %s: name another one", client.ErrUnavailable, r.scanned, head, r.behind())
		}
		if err := rest(ctx, behindPoll); err != nil {
			return err
		}
	}
}

func (r *replay) behind() time.Duration { return cmp.Or(r.o.behindFor, behindFor) }

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// readTarget reads on which changes the target has already.
func (r *replay) readTarget(ctx context.Context) error {
	if r.inTarget == nil {
		r.inTarget = map[changeTag]written{}
	}
	for e, err := range r.api.Entries(ctx, r.scanned) {
		if err != nil {
			return err
		}
		head, err := log.DecodeEventHead(e.Bytes)
		if err != nil {
			return fmt.Errorf("entry %d of the target: %w", e.Seq, err)
		}
		r.scanned = e.Seq
		ms, is := head.ChangeID.UnixMilli()
		tag := tagIn(head.ChangeID)
		if !is || tag.id(uint64(ms)) != head.ChangeID {
			continue // a replay makes no such id
		}
		was, known := r.inTarget[tag]
		if !known {
			was = written{first: e.Seq, ms: uint64(ms)}
		}
		was.last = e.Seq
		r.inTarget[tag] = was
	}
	r.seen = max(r.seen, r.scanned)
	return nil
}

// write writes all changes over one write stream.
func (r *replay) write(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := r.api.NewStream()
	g := new(errgroup.Group)
	defer func() {
		cancel()
		if ended := g.Wait(); !errors.Is(ended, context.Canceled) {
			err = errors.Join(err, ended)
		}
	}()
	g.Go(func() error { return stream.Run(ctx) })
	r.out = bulkwrite.New(ctx, stream, bulkwrite.Options{GoOn: r.o.GoOn, Idle: r.show})
	err = r.begin(ctx)
	if err == nil {
		err = r.follow(ctx)
	}
	// What is under way is awaited, and recorded, also after an error of the source.
	if waited := r.out.Wait(); err == nil || errors.Is(waited, err) {
		err = waited
	} else if !errors.Is(err, waited) {
		err = errors.Join(err, waited)
	}
	if err == nil && r.ids != nil {
		if err = r.maps.sync(); err == nil {
			err = r.ids.save(^place(0), r.seen)
		}
	}
	return err
}

func (r *replay) show() {
	if r.o.Show == nil {
		return
	}
	all := uint64(0)
	if r.from.Head > 0 {
		all = uint64(r.from.Head - min(r.from.Floor, r.from.Head))
	}
	r.o.Show(uint64(max(r.settled, r.from.Floor)-r.from.Floor), all)
}

// begin creates the objects that the log begins with, each in a change of its own.
func (r *replay) begin(ctx context.Context) error {
	if r.from.State == nil {
		return nil
	}
	at := place(0)
	for _, kind := range beginOrder() {
		for rec := range r.from.State.List(kind) {
			source := mappedChange{Cluster: r.from.Cluster, First: r.from.Floor, Last: r.from.Floor, Object: fmt.Sprintf("%s %s", kind, rec.Object.ID())}
			event := &log.Event{Kind: kind, Action: log.Create, ID: rec.Object.ID(), Object: beforeRouters(r.from.State, rec.Object)}
			if err := r.repeat(ctx, at, source, []*log.Event{event}, 0); err != nil {
				return err
			}
			at++
		}
	}
	return nil
}

// follow repeats the changes of the entries.
func (r *replay) follow(ctx context.Context) error {
	var events []*log.Event
	size := 0
	for e, err := range r.from.Entries {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		size += len(e.Bytes)
		e.Bytes = slices.Clone(e.Bytes)
		event, err := e.Event()
		if err != nil {
			return fmt.Errorf("entry %d: %w", e.Seq, err)
		}
		if events = append(events, event); event.More > 0 {
			continue
		}
		source := mappedChange{Cluster: r.from.Cluster, First: e.Seq + 1 - log.Seq(len(events)), Last: e.Seq, ID: event.ChangeID}
		if err := r.repeat(ctx, firstEntry+place(source.First), source, events, size); err != nil {
			return err
		}
		events, size = nil, 0
	}
	return nil
}

// The memory that a change takes until it is settled, in bytes: some times its encoded
// size, and what is kept of each.
const (
	timesEncoded = 6
	besides      = 2 << 10
)

// repeat hands the operations of one change to the writer, unless the target has them.
// size is that of its encoded events, in bytes.
func (r *replay) repeat(ctx context.Context, at place, source mappedChange, events []*log.Event, size int) error {
	defer r.show()
	if r.maps != nil && r.maps.has(source) {
		r.ids.passed(at)
		r.Had++
		r.settled = source.Last
		return nil
	}
	tag := tagOf(source)
	if was, ok := r.inTarget[tag]; ok { // it was written, and its mapping was lost
		delete(r.inTarget, tag)
		r.Had++
		return r.settle(at, mapping{Source: source, Target: was.of(r.Target, tag)})
	}
	item, err := itemOf(events)
	if err != nil {
		return fmt.Errorf("entry %d: %w", source.First, err)
	}
	if len(item.Change.Ops) == 0 {
		r.Skipped++
		return r.settle(at, mapping{Source: source, Target: mappedChange{Cluster: r.Target}, Skipped: "it is about the cluster itself"})
	}
	if r.o.Wait != nil {
		if err := errors.Join(r.out.Settle(), r.o.Wait(ctx, events[0].Time)); err != nil {
			return err
		}
	}
	if r.Target.IsZero() {
		return r.found(ctx, at, source, tag, item.Change)
	}
	if item.Change.ID, err = r.ids.idOf(at, tag, func() error { return r.save(at) }); err != nil {
		return err
	}
	r.pending = append(r.pending, pending{at, r.seen})
	id := item.Change.ID
	item.Size = timesEncoded*size + besides
	item.Settled = func(result log.Result, refused error) error { return r.answered(source, id, result, refused) }
	return r.out.Add(item)
}

// settle records, in its turn, a change that needs no write.
func (r *replay) settle(at place, m mapping) error {
	if r.maps == nil { // an empty cluster is still empty
		r.early = append(r.early, m)
		return nil
	}
	r.ids.passed(at)
	r.pending = append(r.pending, pending{at, r.seen})
	return r.out.Add(bulkwrite.Item{Settled: func(log.Result, error) error {
		r.pending, r.settled = r.pending[1:], m.Source.Last
		return r.maps.add(m)
	}})
}

// answered records the answer of a change.
func (r *replay) answered(source mappedChange, id log.UUID, result log.Result, refused error) error {
	r.pending, r.settled = r.pending[1:], source.Last
	m := mapping{Source: source, Target: mappedChange{Cluster: r.Target}}
	if refused != nil {
		var refusal *log.Refusal
		if errors.As(refused, &refusal) && refusal.Code == log.CodeTooOld {
			return fmt.Errorf("%s was under way for too long, and may have been made: run it again, which looks: %w", source.name(), refused)
		}
		m.Refused = refused.Error()
		if err := r.maps.add(m); err != nil || r.o.GoOn {
			r.Refused++
			return err
		}
		return fmt.Errorf("%s: the target does not take it, and has all before it: %w", source.name(), refused)
	}
	r.Made++
	r.seen = max(r.seen, result.Last)
	m.Target = mappedChange{Cluster: r.Target, First: result.First, Last: result.Last, ID: id}
	return r.maps.add(m)
}

// save records a new era, before its first change at a place is sent.
func (r *replay) save(at place) error {
	if err := r.maps.sync(); err != nil {
		return err
	}
	after := r.seen
	for _, p := range r.pending {
		after = min(after, p.after)
	}
	if len(r.pending) > 0 {
		at = r.pending[0].at
	}
	return r.ids.save(at, after)
}

// foundedPoll is the time between two requests for a cluster's id, which its first
// change gives it.
const foundedPoll = 20 * time.Millisecond

// found makes the first change of a cluster that has no id yet, and then opens the map.
func (r *replay) found(ctx context.Context, at place, source mappedChange, tag changeTag, change *log.Change) error {
	change.ID = tag.id(uint64(time.Now().UnixMilli()))
	result, err := r.api.Submit(ctx, change)
	if err != nil && r.readTarget(ctx) == nil && r.inTarget[tag].last > 0 {
		// A replay that was killed had sent it.
		was := r.inTarget[tag]
		result, change.ID, err = log.Result{First: was.first, Last: was.last}, tag.id(was.ms), nil
	}
	if err != nil {
		return fmt.Errorf("%s: the target does not take it, and has all before it: %w", source.name(), err)
	}
	for end := time.Now().Add(r.behind()); r.Target.IsZero(); {
		status, err := r.api.Status(ctx)
		if err != nil {
			return err
		}
		if r.Target = status.Head.Cluster; !r.Target.IsZero() {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w: a server has not applied the cluster's first change for %s: name another one", client.ErrUnavailable, r.behind())
		}
		if err := rest(ctx, foundedPoll); err != nil { // that server has not applied the change yet
			return err
		}
	}
	if r.Target == r.from.Cluster {
		return ErrSameCluster
	}
	if err := r.openMaps(); err != nil {
		return err
	}
	early := r.early
	r.early, r.Made = nil, r.Made+1
	for _, m := range early {
		m.Target.Cluster = r.Target
		if err := r.maps.add(m); err != nil {
			return err
		}
	}
	r.settled = source.Last
	return r.maps.add(mapping{Source: source, Target: mappedChange{Cluster: r.Target, First: result.First, Last: result.Last, ID: change.ID}})
}
