package replayinto

import (
	"fmt"
	"slices"

	"rutter/cmd/rutter/bulkwrite"
	"rutter/log"
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
var stampedFields = map[log.Kind][]string{log.KindNIC: {"created_timestamp", "modified_timestamp"}, log.KindVMM: {"placed"}}

// firstKinds are created before other kinds when the log has no creates for its first
// objects, because other objects refer to them.
var firstKinds = []log.Kind{log.KindNICTag, log.KindNetwork, log.KindServer, log.KindVM}

// beginOrder are all kinds, in the order in which the objects are created that a log
// begins with.
func beginOrder() []log.Kind {
	kinds := slices.Clone(firstKinds)
	for _, kind := range log.Kinds() {
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
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

// itemOf returns the change that has the effect of the events of one change, without its
// id; without operations if there is none for another cluster.
func itemOf(events []*log.Event) (item bulkwrite.Item, err error) {
	item.Change = new(log.Change)
	withRouter := slices.ContainsFunc(events, func(e *log.Event) bool { return e.Kind == log.KindRouter })
	for _, e := range events {
		op, ok, err := opOf(e)
		if err != nil {
			return item, err
		}
		touch, wrong := touchOf(e)
		if wrong != nil {
			return item, wrong
		}
		if !ok || withRouter && (isOfRouter(touch.Before) || isOfRouter(touch.After)) {
			continue
		}
		item.Change.Ops = append(item.Change.Ops, op)
		item.Touches = append(item.Touches, touch)
	}
	return item, nil
}

// isOfRouter reports whether an object is an address that a router has: one that is made,
// changed and deleted with its router makes the target itself.
func isOfRouter(o log.Object) bool {
	ip, is := o.(*log.IP)
	return is && ip.BelongsToType == "router"
}

// touchOf says what an event touches.
func touchOf(e *log.Event) (t bulkwrite.Touch, err error) {
	t = bulkwrite.Touch{Kind: e.Kind, Action: e.Action, ID: e.ID, After: e.Object}
	if e.Action == log.Update && slices.ContainsFunc(e.Changed, func(c log.FieldChange) bool { return !bulkwrite.IsPlain(c.Path) }) {
		t.Before, err = log.Revert(e.Object, e.Changed)
	}
	return t, err
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
	if e.Kind == log.KindNIC && slices.Contains(op.Set, "network_uuid") && !slices.Contains(op.Set, "ip") {
		op.Set = append(op.Set, "ip") // else the target chooses one, and not the same of the other network
	}
	slices.Sort(op.Set)
	return op, len(op.Set) > 0, nil
}
