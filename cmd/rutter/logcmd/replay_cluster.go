package logcmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/archive"
	"rutter/projections"
)

// ownKinds are those of objects that are about a cluster itself, which another
// one has of its own: who may do what there, how it runs, and what its compute
// nodes have been told to do, which those of another would do again.
var ownKinds = []log.Kind{
	log.KindTask, log.KindTicket,
	log.KindSetting, log.KindToken, log.KindRevocation, log.KindGrant, log.KindAuthority, log.KindCertificate,
}

// stampedFields are set by whoever decides an update, and refused from others.
var stampedFields = map[log.Kind][]string{log.KindNIC: {"created_timestamp", "modified_timestamp"}}

// clusterReplay brings the changes of one log into another cluster.
type clusterReplay struct {
	api      *client.Client
	source   log.UUID
	target   log.UUID
	maps     *mapFile                   // nil until the target has an id, with its first change
	name     string                     // of the file of maps, if the user chose one
	early    []mapping                  // for maps
	inTarget map[changeTag]mappedChange // in the target's log, and not in maps
	speed    pace
	made     int
	skipped  int
	had      int
}

// replayCluster brings a log into the cluster of a URL.
func replayCluster(c *cli.Context, s *pastLog, to string, speed uint64) error {
	source := log.UUID{}
	if s.folder != nil {
		source = s.folder.Head().Cluster
	} else {
		status, err := s.api.Status(c.Context)
		if err != nil {
			return err
		}
		source = status.Head.Cluster
	}
	return withClusterReplay(c, source, to, speed, func(r *clusterReplay) error {
		if s.floor > 0 {
			state, err := s.folder.StateAt(c.Context, s.floor)
			if err != nil {
				return err
			}
			if err := r.begin(c.Context, state, s.floor); err != nil {
				return err
			}
		}
		return r.follow(c.Context, s.entries(c.Context, s.floor), s.head)
	})
}

// importCluster brings an export into the cluster of a URL.
func importCluster(c *cli.Context, in *archive.Reader, to string) error {
	return withClusterReplay(c, in.Header().Cluster, to, 0, func(r *clusterReplay) error {
		return r.follow(c.Context, archived(c.Context, in), 0)
	})
}

// withClusterReplay calls do with what brings changes into the cluster of a URL, and says
// what came of it.
func withClusterReplay(c *cli.Context, source log.UUID, to string, speed uint64, do func(*clusterReplay) error) (err error) {
	api, err := term.OpenClient(term.ClientConfigOf(c, strings.Split(to, ",")))
	if err != nil {
		return err
	}
	defer api.Close()
	status, err := api.Status(c.Context)
	if err != nil {
		return err
	}
	target := status.Head.Cluster
	if target == source {
		return term.Usagef("--to %s: that is the cluster that the log is of", to)
	}
	r := &clusterReplay{api: api, source: source, target: target, name: c.String("map"), speed: pace{speed: speed}}
	defer func() {
		if r.maps != nil {
			err = errors.Join(err, r.maps.close())
		}
	}()
	last := log.Seq(0)
	if !target.IsZero() {
		if err := r.openMaps(); err != nil {
			return err
		}
		last = r.maps.last
	}
	if err := r.readTarget(c.Context, max(last, status.Floor)); err != nil {
		return err
	}
	err = do(r)
	if r.maps == nil {
		fmt.Fprintf(os.Stderr, "nothing was made in %s, %d changes were skipped\n", to, r.skipped)
		return err
	}
	fmt.Fprintf(os.Stderr, "cluster %s: %d changes made, %d were there, %d skipped; %s says which is which\n", r.target, r.made, r.had, r.skipped, r.maps.name)
	return err
}

// openMaps opens the record of what stands for what, of a target that has an id.
func (r *clusterReplay) openMaps() (err error) {
	r.maps, err = openMap(r.name, r.source, r.target)
	return err
}

// foundedPoll is how often a cluster is asked for its id, which its first change gives it.
const foundedPoll = 20 * time.Millisecond

// note records what stands for a change of the source.
func (r *clusterReplay) note(ctx context.Context, m mapping) error {
	if r.maps != nil {
		return r.maps.add(m)
	}
	r.early = append(r.early, m)
	if m.Skipped != "" {
		return nil // an empty cluster is still empty
	}
	for r.target.IsZero() {
		status, err := r.api.Status(ctx)
		if err != nil {
			return err
		}
		if r.target = status.Head.Cluster; !r.target.IsZero() {
			break
		}
		select { // that server has not heard of the change yet
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(foundedPoll):
		}
	}
	if err := r.openMaps(); err != nil {
		return err
	}
	for _, m := range r.early {
		m.Target.Cluster = r.target
		if err := r.maps.add(m); err != nil {
			return err
		}
	}
	r.early = nil
	return nil
}

// readTarget reads which changes the target has already, behind a seq.
func (r *clusterReplay) readTarget(ctx context.Context, after log.Seq) error {
	r.inTarget = map[changeTag]mappedChange{}
	for e, err := range r.api.Entries(ctx, after) {
		if err != nil {
			return err
		}
		head, err := log.DecodeEventHead(e.Bytes)
		if err != nil {
			return fmt.Errorf("entry %d of the target: %w", e.Seq, err)
		}
		tag := tagIn(head.ChangeID)
		was, known := r.inTarget[tag]
		if !known {
			was = mappedChange{Cluster: r.target, First: e.Seq, ID: head.ChangeID}
		}
		was.Last = e.Seq
		r.inTarget[tag] = was
	}
	return nil
}

// firstKinds come before the others when objects are made of which the log has
// no creation: what others refer to.
var firstKinds = []log.Kind{log.KindNICTag, log.KindNetwork, log.KindServer, log.KindVM}

// begin makes the objects that a log begins with, each in a change of its own.
func (r *clusterReplay) begin(ctx context.Context, state *projections.State, floor log.Seq) error {
	kinds := slices.Clone(firstKinds)
	for kind := log.Kind(1); log.NewObject(kind) != nil || kind < 64; kind++ {
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	for _, kind := range kinds {
		for rec := range state.List(kind) {
			source := mappedChange{Cluster: r.source, First: floor, Last: floor, Object: fmt.Sprintf("%s %s", kind, rec.Object.ID())}
			event := &log.Event{Kind: kind, Action: log.Create, ID: rec.Object.ID(), Object: beforeRouters(state, rec.Object)}
			if err := r.repeat(ctx, source, []*log.Event{event}); err != nil {
				return err
			}
		}
	}
	return nil
}

// beforeRouters is an object without what routers gave it, which they give again
// when they are made: to a network the routes to the others of its routers.
func beforeRouters(state *projections.State, o log.Object) log.Object {
	n, ok := o.(*log.Network)
	if !ok || len(n.Routes) == 0 {
		return o
	}
	n = log.Clone(n).(*log.Network)
	for rec := range state.List(log.KindRouter) {
		router := rec.Object.(*log.Router)
		if !slices.Contains(router.Networks, n.UUID) {
			continue
		}
		for _, uuid := range router.Networks {
			if other := state.Network(uuid); other != nil {
				n.Routes = slices.DeleteFunc(n.Routes, func(r log.Route) bool { return r.Dst == other.Subnet.String() })
			}
		}
	}
	return n
}

// follow makes the changes of entries, which begin and end with whole ones. head
// is where they end, for the word of progress; 0 if that is not known.
func (r *clusterReplay) follow(ctx context.Context, entries iter.Seq2[log.Entry, error], head log.Seq) error {
	progress := progressOf("entry")
	var events []*log.Event
	for e, err := range entries {
		if err != nil {
			return err
		}
		e.Bytes = slices.Clone(e.Bytes)
		event, err := e.Event()
		if err != nil {
			return fmt.Errorf("entry %d: %w", e.Seq, err)
		}
		if events = append(events, event); event.More > 0 {
			continue
		}
		source := mappedChange{Cluster: r.source, First: e.Seq + 1 - log.Seq(len(events)), Last: e.Seq, ID: event.ChangeID}
		if err := r.repeat(ctx, source, events); err != nil {
			return err
		}
		events = nil
		if head > 0 {
			progress(int64(e.Seq), int64(head))
		}
	}
	return nil
}

// repeat has the target do what the events of one change did, unless it has.
func (r *clusterReplay) repeat(ctx context.Context, source mappedChange, events []*log.Event) error {
	if r.maps != nil && r.maps.done[source.key()] {
		r.had++
		return nil
	}
	tag := tagOf(source)
	if was, ok := r.inTarget[tag]; ok { // written, and the record of it was lost
		r.had++
		return r.note(ctx, mapping{Source: source, Target: was})
	}
	change := &log.Change{ID: tag.id()}
	for _, e := range events {
		op, ok, err := opOf(e)
		if err != nil {
			return fmt.Errorf("entry %d: %w", source.First, err)
		}
		if ok {
			change.Ops = append(change.Ops, op)
		}
	}
	if len(change.Ops) == 0 {
		r.skipped++
		return r.note(ctx, mapping{Source: source, Target: mappedChange{Cluster: r.target}, Skipped: "it is about the cluster itself"})
	}
	if err := r.speed.wait(ctx, events[0].Time); err != nil {
		return err
	}
	result, err := r.api.Submit(ctx, change)
	if err != nil {
		return fmt.Errorf("%s: the target does not take it, and has all before it: %w", source.name(), err)
	}
	r.made++
	return r.note(ctx, mapping{Source: source, Target: mappedChange{Cluster: r.target, First: result.First, Last: result.Last, ID: change.ID}})
}

// opOf is the operation that does what an event did; ok is false if there is
// nothing that another cluster could do.
func opOf(e *log.Event) (op log.Op, ok bool, err error) {
	if slices.Contains(ownKinds, e.Kind) {
		return op, false, nil
	}
	empty := log.NewObject(e.Kind)
	if empty == nil {
		return op, false, fmt.Errorf("%s %s is of a kind that this program does not know: use a newer one: %w", e.Kind, e.ID, log.ErrFormat)
	}
	op = log.Op{Action: e.Action, Kind: e.Kind}
	if e.Action != log.Create { // the id of a new object stands in it
		op.ID = e.ID
	}
	if e.Action == log.Delete {
		return op, true, nil
	}
	op.Object = e.Object
	changed := e.Changed
	if e.Action == log.Create {
		changed = log.Diff(empty, e.Object)
	}
	for _, field := range changed {
		if e.Action == log.Create || !slices.Contains(stampedFields[e.Kind], field.Path) {
			op.Set = append(op.Set, field.Path)
		}
	}
	slices.Sort(op.Set)
	return op, len(op.Set) > 0, nil
}
