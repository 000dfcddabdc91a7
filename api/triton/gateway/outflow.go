package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rutter/api/triton/vmapi"
	"rutter/log"
	"rutter/log/vmobject"
	"rutter/projections"
)

// outflow sends the old VMAPI what agents report.
type outflow struct {
	g *Gateway

	mu sync.Mutex // protects what follows
	// seen are the VMs of nodes with Rutter's agent that the log has, with a zero time, and
	// those that it had, with the time at which they were found gone, for seenFor. A VM that
	// the log never had is not gone: its node may not have reported it yet, or the log
	// refuses it.
	seen   map[string]time.Time
	pruned time.Time
}

func newOutflow(g *Gateway) *outflow { return &outflow{g: g, seen: make(map[string]time.Time)} }

// Times of what is remembered of VMs that are gone.
const (
	noteEvery = time.Second // on a server that does not lead
	seenFor   = 24 * time.Hour
)

// watch notes which VMs the log has, on each server, until ctx ends: the next leader must
// know which VMs were there.
func (o *outflow) watch(ctx context.Context) {
	of := changes{store: o.g.store}
	for ctx.Err() == nil {
		changed := o.g.store.Changed()
		if vms, all, err := of.next(); err != nil {
			o.g.logger.Warn("the log's changes cannot be read", "error", err)
		} else {
			o.note(o.now(vms, all), vms, all, time.Now())
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
		select {
		case <-time.After(noteEvery):
		case <-ctx.Done():
		}
	}
}

// note remembers the VMs that the log has now, of those that changed or of all.
func (o *outflow) note(now map[string]sentVM, changed map[string]bool, all bool, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	gone := func(id string) {
		if _, there := now[id]; !there && o.seen[id].IsZero() {
			o.seen[id] = at
		}
	}
	if all {
		for id := range o.seen {
			gone(id)
		}
	}
	for id := range changed {
		if _, had := o.seen[id]; had {
			gone(id)
		}
	}
	for id := range now {
		o.seen[id] = time.Time{}
	}
	if at.Sub(o.pruned) < seenFor/24 {
		return
	}
	o.pruned = at
	for id, since := range o.seen {
		if !since.IsZero() && at.Sub(since) > seenFor {
			delete(o.seen, id)
		}
	}
}

// was reports whether the log had a VM.
func (o *outflow) was(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, had := o.seen[id]
	return had
}

// run has the old VMAPI know the VMs of compute nodes with Rutter's agent, as the log
// has them (rule 5), while this server leads: each change when the log has it, and
// everything when this server begins to lead, after a gap of what it has read, and once in
// each Config.Sweep. It does what a vm-agent does on other nodes.
func (o *outflow) run(ctx context.Context) {
	o.g.whileLeading(ctx, func(ctx context.Context) {
		pause := firstPause
		for ctx.Err() == nil {
			err := o.term(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				o.g.logger.Debug("VMs of the log are not with "+o.g.name()+" yet", "error", err)
			} else {
				pause = firstPause
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, mostPause)
		}
	})
}

// sentVM is a VM as the old VMAPI has it.
type sentVM struct {
	seq  log.Seq // of the record in the log
	form map[string]any
}

// term compares everything, follows the log for Config.Sweep or until a gap, and returns.
func (o *outflow) term(ctx context.Context) error {
	out, err := o.begin(ctx)
	if err != nil {
		return err
	}
	until := time.NewTimer(o.g.cfg.Sweep)
	defer until.Stop()
	for {
		changed := o.g.store.Changed()
		if whole, err := out.step(ctx); whole || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-until.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		select { // what changes within it is looked at once
		case <-time.After(gather):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sending is a term of an outflow. sent are VMs as the old VMAPI has them.
type sending struct {
	*outflow
	log  changes
	sent map[string]sentVM
}

// begin compares everything and sends what differs.
func (o *outflow) begin(ctx context.Context) (*sending, error) {
	out := &sending{outflow: o, log: changes{store: o.g.store}}
	if _, _, err := out.log.next(); err != nil { // before what is compared, so that nothing is missed
		return nil, err
	}
	var err error
	if out.sent, err = o.compare(ctx); err != nil {
		return nil, err
	}
	return out, o.send(ctx, out.sent, nil, true)
}

// step sends what changed since the last one. Its cost is that of the changes, and does
// not grow with the VMs of the log. whole: what changed is not known.
func (out *sending) step(ctx context.Context) (whole bool, err error) {
	vms, whole, err := out.log.next()
	if err != nil || whole || len(vms) == 0 {
		return whole, err
	}
	return false, out.send(ctx, out.sent, vms, false)
}

// gather is how long changes of the log are gathered.
const gather = 50 * time.Millisecond

// compare returns the active VMs of each node with an agent, as the old VMAPI has them.
func (o *outflow) compare(ctx context.Context) (map[string]sentVM, error) {
	sent := make(map[string]sentVM)
	for _, cn := range o.agents() {
		theirs, err := o.theirs(ctx, cn)
		if err != nil {
			return nil, err
		}
		for id, have := range theirs {
			// seq 0: the log's record is compared with it.
			sent[id] = sentVM{form: have}
		}
	}
	return sent, nil
}

// agents are the compute nodes with Rutter's agent.
func (o *outflow) agents() (all []log.UUID) {
	o.g.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindServer) {
			if cn := rec.Object.(*log.Server).UUID; hasAgent(state, cn) {
				all = append(all, cn)
			}
		}
	})
	return all
}

// theirs are the active VMs of a node as the old VMAPI has them.
func (o *outflow) theirs(ctx context.Context, cn log.UUID) (map[string]map[string]any, error) {
	all := make(map[string]map[string]any)
	for offset := 0; offset < MaxSwept; offset += vmPage {
		query := url.Values{"server_uuid": {cn.String()}, "state": {"active"}, "limit": {strconv.Itoa(vmPage)}, "offset": {strconv.Itoa(offset)}}
		body, _, err := o.g.behind.ask(ctx, http.MethodGet, "/vms?"+query.Encode(), nil, nil)
		if err != nil {
			return nil, err
		}
		var page []map[string]any
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, fmt.Errorf("GET /vms: %w", err)
		}
		for _, one := range page {
			if id, ok := one["uuid"].(string); ok {
				all[id] = one
			}
		}
		if len(page) < vmPage {
			break
		}
	}
	return all, nil
}

// now are those of some VMs that nodes with an agent have by the log, or all of them.
func (o *outflow) now(some map[string]bool, all bool) map[string]sentVM {
	if all {
		return o.of()
	}
	now := make(map[string]sentVM, len(some))
	o.g.store.View(func(state *projections.State, _ log.Cursor) {
		for id := range some {
			if rec, ok := state.Get(log.KindVM, id); ok && flows(rec) && hasAgent(state, rec.Object.(*log.VM).ServerUUID) {
				now[id] = sentVM{seq: rec.Seq}
			}
		}
	})
	return now
}

// flows reports whether the old VMAPI is told of a VM: of one that is being made it has a
// record of its own.
func flows(rec projections.Record) bool {
	vm := rec.Object.(*log.VM)
	return !vm.DoNotInventory && vm.State != stateProvisioning
}

// of are the VMs that nodes with an agent have by the log, without their forms: those of
// 100,000 VMs would hold up the log.
func (o *outflow) of() map[string]sentVM {
	now := make(map[string]sentVM)
	o.g.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindServer) {
			cn := rec.Object.(*log.Server).UUID
			if !hasAgent(state, cn) {
				continue
			}
			for rec := range state.VMsOn(cn) {
				if flows(rec) {
					now[rec.Object.ID()] = sentVM{seq: rec.Seq}
				}
			}
		}
	})
	return now
}

// form is a VM of the log as the old VMAPI is to have it; have is what it has. nil: the
// log has it no more.
func (o *outflow) form(id string, have map[string]any) (form map[string]any) {
	keeps := false
	o.g.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindVM, id); ok {
			form, keeps = vmapi.Form(state, rec.Object.(*log.VM)), state.Feature() >= log.FeatureTriton
		}
	})
	if form == nil {
		return nil
	}
	return complete(plain(form), have, keeps)
}

// complete adds to a VM's form what the old VMAPI has of it and the log cannot have: below
// FeatureTriton, all but the fields of log.VM and its networks; else what was too large. A
// PUT replaces the whole object, so the old one would lose it.
func complete(form, have map[string]any, keeps bool) map[string]any {
	if !keeps {
		for name, value := range have {
			if !slices.Contains(ofLog, name) {
				form[name] = value
			}
		}
		return form
	}
	left, _ := form[vmobject.LeftOut].([]any)
	for _, one := range left {
		label, _ := one.(string)
		name, _, _ := strings.Cut(label, ".")
		theirs, has := have[name]
		of, isObject := theirs.(map[string]any)
		ours, both := form[name].(map[string]any)
		switch {
		case !has:
		case isObject && both:
			for key, value := range of {
				if _, given := ours[key]; !given {
					ours[key] = value
				}
			}
		case empty(form[name]):
			form[name] = theirs
		}
	}
	return form
}

// empty reports whether a value is what VMAPI shows if there is nothing.
func empty(value any) bool {
	switch v := value.(type) {
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return value == nil
}

// ofLog are the fields of a VM that the log has below FeatureTriton.
var ofLog = append(slices.DeleteFunc(log.FieldNames(log.KindVM), func(name string) bool { return name == "properties" || name == log.FieldLabels }), "nics", "ram", "resolvers", "routes")

// send sends those of some VMs, or of all, that the old VMAPI has otherwise, and ends those
// that are gone.
func (o *outflow) send(ctx context.Context, sent map[string]sentVM, some map[string]bool, all bool) error {
	now := o.now(some, all)
	o.note(now, some, all, time.Now())
	for id, one := range now {
		have := sent[id]
		if all && have.seq == one.seq && one.seq != 0 {
			continue // it did not change
		}
		if one.form = o.form(id, have.form); one.form == nil {
			continue // the next round ends it
		}
		if have.form == nil || differ(have.form, one.form) {
			if err := o.put(ctx, id, one.form); err != nil {
				return err
			}
		}
		sent[id] = one
	}
	if all {
		for id := range sent {
			if _, still := now[id]; !still {
				if err := o.end(ctx, sent, id); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for id := range some {
		if _, still := now[id]; still {
			continue
		}
		if _, has := sent[id]; has {
			if err := o.end(ctx, sent, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// end tells the old VMAPI of a VM that the log had and has no more, as a vm-agent does:
// the last object, destroyed.
func (o *outflow) end(ctx context.Context, sent map[string]sentVM, id string) error {
	defer delete(sent, id)
	have := sent[id]
	if vm, _ := o.g.vmOf(id); vm != nil {
		return nil // it moved, is moving, or came back
	} else if !o.was(id) {
		o.g.logger.Warn(o.g.name()+" has a VM of a compute node with Rutter's agent that the log does not have: it stays there as it is", "vm", id)
		return nil
	}
	state, _ := have.form["state"].(string)
	if state == stateDestroyed || state == stateProvisioning || state == stateFailed || have.form == nil {
		return nil
	}
	form := maps.Clone(have.form)
	form["state"], form["zone_state"] = stateDestroyed, stateDestroyed
	return o.put(ctx, id, form)
}

// put sends one VM to the old VMAPI. One that it refuses is logged, and compared again in
// the next round: the others do not wait for it.
func (o *outflow) put(ctx context.Context, id string, form map[string]any) error {
	body, err := json.Marshal(form)
	if err != nil {
		return err
	}
	if _, _, err = o.g.behind.ask(ctx, http.MethodPut, "/vms/"+id, body, nil); err != nil {
		o.g.cfg.Metrics.taken.WithLabelValues(o.g.cfg.Surface, "failed").Inc()
		var said *errStatus
		if asStatus(err, &said) && said.status < 500 {
			o.g.logger.Warn(o.g.name()+" refuses a VM of the log", "vm", id, "error", err)
			return nil
		}
		return fmt.Errorf("PUT /vms/%s: %w", id, err)
	}
	o.g.cfg.Metrics.taken.WithLabelValues(o.g.cfg.Surface, "sent").Inc()
	return nil
}

// plain is an object as JSON has it, for comparison.
func plain(form map[string]any) (same map[string]any) {
	text, err := json.Marshal(form)
	if err == nil {
		err = json.Unmarshal(text, &same)
	}
	if err != nil {
		panic("gateway: a VM has no JSON form: " + err.Error()) // every VM of the log has one
	}
	return same
}

// differ reports whether the log's form of a VM has a field that the old VMAPI has
// otherwise. Fields that only the old one has are its own.
func differ(have, want map[string]any) bool {
	for name, value := range want {
		a, err1 := json.Marshal(have[name])
		b, err2 := json.Marshal(value)
		if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
			return true
		}
	}
	return false
}
