package applycmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rutter/api/client"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/documents"
	"rutter/projections/foresee"
)

// cloud is the state of the servers that a plan is made of.
type cloud struct {
	cluster log.UUID
	head    log.Seq
	state   *projections.State
}

// Times of reading a state.
const (
	headWithin = time.Second            // for the answers of all servers to how far they are
	readWithin = 10 * time.Second       // for a server to have what another one has
	readAgain  = 100 * time.Millisecond // after a server that is behind
)

// newest returns the highest head of the servers that answer in time.
func newest(ctx context.Context, api *client.Client) (head log.Seq) {
	ctx, cancel := context.WithTimeout(ctx, headWithin)
	defer cancel()
	heads := make(chan log.Seq)
	for _, server := range api.Servers() {
		go func() {
			status, err := api.StatusOf(ctx, server)
			if err != nil {
				status.Head.Seq = 0
			}
			heads <- status.Head.Seq
		}()
	}
	for range api.Servers() {
		head = max(head, <-heads)
	}
	return head
}

// read reads the whole state of the servers, of one that has what any of them has: a
// server that is behind would show as undone what an apply before wrote.
func read(ctx context.Context, api *client.Client) (*cloud, error) {
	head, end := newest(ctx, api), time.Now().Add(readWithin)
	status, err := api.Status(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := api.State(ctx, nil)
	for err == nil && answer.Seq < head && time.Now().Before(end) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(readAgain):
		}
		answer, err = api.State(ctx, nil)
	}
	if err != nil {
		return nil, err
	}
	if answer.Seq < head {
		return nil, fmt.Errorf("the server that answers has seq %d, and another one %d: name the other one with -s", answer.Seq, head)
	}
	c := &cloud{cluster: status.Head.Cluster, head: answer.Seq, state: projections.NewPart()}
	if status.Detail.Feature > 0 {
		c.state.SetFeature(min(status.Detail.Feature, log.FeatureVersion))
	}
	c.state.SetTime(status.Time)
	for i, o := range answer.Objects {
		if err := c.state.Load(projections.Record{Object: o.Object, Revision: o.Revision, Seq: o.Seq}); err != nil {
			return nil, err
		}
		answer.Objects[i] = client.StateObject{} // free the memory: the state has the object
	}
	return c, nil
}

// set is what is to be written, and what it would do.
type set struct {
	head    log.Seq // of the state that it was made of
	changes []*log.Change
	outcome foresee.Outcome
	// replaced are the objects that would be deleted and made again.
	replaced []documents.Step
	prune    pruned
	same     int // objects that are as they are declared
	// fixed: the ids of the changes are those of a file, and what was written under them
	// is not written again.
	fixed bool
	// before are the changes of the same file that an earlier run wrote.
	before []*log.Change
	docs   int // how many documents it is made of

	named map[object]log.Seq // see seqOf
}

// empty reports whether there is nothing to do.
func (s *set) empty() bool { return s.outcome.Events() == 0 && s.outcome.Refusals() == 0 }

// pruned is what pruning deletes.
type pruned struct {
	Set     string `json:"set"`     // what was asked for; "": nothing
	Deleted int    `json:"deleted"` // objects that no document declares
	All     int    `json:"all"`     // objects that the set has
}

// most reports whether pruning takes away so much that it may be a mistake: more than half
// of the set.
func (p pruned) most() bool { return 2*p.Deleted > p.All }

// makeSet makes what brings the state to what documents say.
func makeSet(c *cloud, docs []documents.Document, prune *documents.Selection, now time.Time) (*set, error) {
	objects, err := documents.Resolve(c.state, docs)
	if err != nil {
		return nil, err
	}
	plan, err := documents.Diff(c.state, objects, prune)
	if err != nil {
		return nil, err
	}
	s := &set{head: c.head, same: len(plan.Same)}
	var together [][]int
	for _, step := range plan.Steps {
		if step.Verb == documents.Replace {
			s.replaced = append(s.replaced, step)
		}
		if step.Verb == documents.Delete {
			s.prune.Deleted++
		}
		together = append(together, step.Ops)
	}
	if prune != nil {
		s.prune.Set = selectionText(prune)
		s.prune.All = count(c.state, prune)
	}
	if s.changes, err = pack(plan.Ops, together); err != nil {
		return nil, err
	}
	if err := identify(s.changes, now); err != nil {
		return nil, err
	}
	s.outcome = foresee.Of(c.state, c.head, s.changes)
	return s, nil
}

// count returns how many objects a selection has.
func count(state *projections.State, of *documents.Selection) (n int) {
	for _, kind := range documents.Kinds() {
		for r := range state.List(kind) {
			if of.Has(r.Object) {
				n++
			}
		}
	}
	return n
}

func selectionText(of *documents.Selection) string {
	var parts []string
	for key, value := range of.Labels {
		parts = append(parts, key+"="+value)
	}
	slices.Sort(parts)
	if !of.Owner.IsZero() {
		parts = append(parts, "owner "+of.Owner.String())
	}
	return strings.Join(parts, ", ")
}

// stale names the objects of operations that are not any more as the operations need
// them: in the state, with what the changes before theirs make of it left out of account.
// An object that a change makes must not be there, and any other one must have the seq that
// the operation names.
func stale(state *projections.State, changes []*log.Change) (texts []string) {
	made := map[object]bool{} // by the changes, or deleted by them: their own conditions speak of these
	for _, c := range changes {
		for i := range c.Ops {
			op := &c.Ops[i]
			id := idOf(op)
			r, held := state.Get(op.Kind, id)
			if held {
				id = r.Object.ID()
			}
			of := object{op.Kind, id}
			switch {
			case made[of] || id == "":
			case op.Action == log.Create && held:
				texts = append(texts, fmt.Sprintf("%s %s was made meanwhile, at #%d", op.Kind, id, r.Seq))
			case op.Action != log.Create && !held:
				texts = append(texts, fmt.Sprintf("%s %s was deleted meanwhile", op.Kind, id))
			case op.Action != log.Create && op.IfSeq != 0 && op.IfSeq != r.Seq:
				texts = append(texts, fmt.Sprintf("%s %s was changed meanwhile, at #%d", op.Kind, id, r.Seq))
			}
			made[of] = true
		}
	}
	return texts
}
