package logcmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/archive"
	"rutter/projections"
)

// ownKinds are the kinds of objects about the cluster itself, which are not replayed.
// The target has its own rights and settings, and its compute nodes would do the tasks
// of the source again.
var ownKinds = []log.Kind{
	log.KindTask, log.KindTicket,
	log.KindSetting, log.KindToken, log.KindRevocation, log.KindGrant, log.KindAuthority, log.KindCertificate,
}

// stampedFields are set by the server that decides an update, and refused from clients.
var stampedFields = map[log.Kind][]string{log.KindNIC: {"created_timestamp", "modified_timestamp"}}

// clusterReplay repeats the changes of one log in another cluster.
type clusterReplay struct {
	api      *client.Client
	source   log.UUID
	target   log.UUID
	maps     *mapFile                   // nil until the target has an id, which its first change gives it
	name     string                     // of the map file, if the user chose one
	early    []mapping                  // mappings to write when maps is open
	inTarget map[changeTag]mappedChange // in the target's log, and not in maps
	speed    pace
	made     int
	skipped  int
	had      int
}

// replayCluster replays a log into the cluster of a URL.
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

// importCluster replays an export into the cluster of a URL.
func importCluster(c *cli.Context, in *archive.Reader, to string) error {
	return withClusterReplay(c, in.Header().Cluster, to, 0, func(r *clusterReplay) error {
		return r.follow(c.Context, archived(c.Context, in), 0)
	})
}

// withClusterReplay calls do with a clusterReplay into the cluster of a URL, and prints
// the result.
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
		output.Printf(c.App.ErrWriter, "nothing was made in %s, %d changes were skipped\n", to, r.skipped)
		return err
	}
	output.Printf(c.App.ErrWriter, "cluster %s: %d changes made, %d were there, %d skipped; %s says which is which\n", r.target, r.made, r.had, r.skipped, r.maps.name)
	return err
}

// openMaps opens the map file, if the target has an id.
func (r *clusterReplay) openMaps() (err error) {
	r.maps, err = openMap(r.name, r.source, r.target)
	return err
}

// foundedPoll is the time between two requests for a cluster's id, which its first
// change gives it.
const foundedPoll = 20 * time.Millisecond

// note records the mapping of a change of the source.
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
		select { // that server has not applied the change yet
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

// readTarget reads which changes the target has already, after a seq.
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

// firstKinds are created before other kinds when the log has no creates for its first
// objects, because other objects refer to them.
var firstKinds = []log.Kind{log.KindNICTag, log.KindNetwork, log.KindServer, log.KindVM}

// begin creates the objects that a log begins with, each in a change of its own.
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

// beforeRouters returns an object without what routers added to it: a network without
// the routes to the other networks of its routers. The routers add these again when
// they are created.
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

// follow repeats the changes of entries, which begin and end with whole changes. head
// is their last seq, for the progress; 0 if it is unknown.
func (r *clusterReplay) follow(ctx context.Context, entries iter.Seq2[log.Entry, error], head log.Seq) error {
	progress := output.Percent("entry")
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

// repeat submits the operations of one change to the target, unless the target has
// them.
func (r *clusterReplay) repeat(ctx context.Context, source mappedChange, events []*log.Event) error {
	if r.maps != nil && r.maps.done[source.key()] {
		r.had++
		return nil
	}
	tag := tagOf(source)
	if was, ok := r.inTarget[tag]; ok { // it was written, and its mapping was lost
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

// opOf returns the operation that has the effect of an event. ok is false if there is
// none for another cluster.
func opOf(e *log.Event) (op log.Op, ok bool, err error) {
	if slices.Contains(ownKinds, e.Kind) {
		return op, false, nil
	}
	empty := log.NewObject(e.Kind)
	if empty == nil {
		return op, false, fmt.Errorf("%s %s is of a kind that this program does not know: use a newer one: %w", e.Kind, e.ID, log.ErrFormat)
	}
	op = log.Op{Action: e.Action, Kind: e.Kind}
	if e.Action != log.Create { // a new object contains its id
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
