package documents

import (
	"cmp"
	"fmt"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// Secrets are the fields of a VM's properties that may hold secrets. No export has them;
// an apply leaves those that there are.
var Secrets = []string{"customer_metadata", "internal_metadata"}

// Export makes the documents of the objects that a selection has: in the order of Kinds,
// then of names and ids. What follows from other objects, such as the addresses of routers,
// is left out, and so are Secrets.
func Export(state *projections.State, selection Selection) []Document {
	e := &exporter{state: state, dir: newDirectory(state), view: projections.NewOverlay(state, false)}
	var all []Document
	for _, kind := range kinds {
		type named struct{ name, id string }
		var found []named
		for rec := range state.List(kind) {
			if selection.Has(rec.Object) && declaredObject(state, rec.Object) {
				found = append(found, named{nameOf(rec.Object), rec.Object.ID()})
			}
		}
		slices.SortFunc(found, func(a, b named) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id)) })
		for _, one := range found {
			rec, _ := state.Get(kind, one.id)
			all = append(all, e.document(rec.Object))
		}
	}
	return all
}

// exporter is the work of Export.
type exporter struct {
	state *projections.State
	dir   *directory
	view  projections.Overlay
}

// document makes the document of one object.
func (e *exporter) document(o log.Object) Document {
	kind := o.Kind()
	doc := Document{Kind: kind, Name: nameOf(o), Labels: LabelsOf(o), Spec: make(map[string]any)}
	if field := UUIDField(kind); field != "" {
		doc.UUID = *log.UUIDField(o, field)
	}
	if e.isForeign(o) {
		doc.Options = []log.Option{log.OptionAnyOwner}
	}
	for _, f := range forms[kind] {
		if v := e.value(o, f); v != nil {
			doc.Spec[f.Name] = v
		}
	}
	return doc
}

// value is what a document has of a field; nil: nothing.
func (e *exporter) value(o log.Object, f Field) any {
	v, _ := log.Field(o, f.FieldDoc.Name)
	if v == nil || v == false || v == uint64(0) && !(o.Kind() == log.KindFabricVLAN && f.Name == "vlan_id") || e.follows(o, f.FieldDoc.Name) {
		return nil
	}
	if f.FieldDoc.Name == belongsToType || f.FieldDoc.Name == belongsToUUID {
		if v = belonging(o, f, v); v == nil {
			return nil
		}
	}
	switch v := v.(type) {
	case bool, uint64:
		return Plain(fmt.Sprint(v))
	case string:
		if f.JSON {
			return e.structure(o, v)
		}
		return e.refer(o, f, v)
	case []string:
		all := make([]any, len(v))
		for i, text := range v {
			all[i] = e.refer(o, f, text)
		}
		return all
	case map[string]string:
		return e.routes(o.(*log.Network))
	}
	return nil
}

// belonging keeps one form of what a NIC or an address belongs to: vm or server, where it
// is one, else the fields of the log.
func belonging(o log.Object, f Field, v any) any {
	if o.Kind() == log.KindAggregation {
		return v
	}
	of, _ := log.Field(o, belongsToType)
	uuid, _ := log.Field(o, belongsToUUID)
	own := ""
	for name, value := range belongsTo {
		if of == value && uuid != nil {
			own = name
		}
	}
	if own == "" && belongsTo[f.Name] != "" || own != "" && f.Name != own {
		return nil
	}
	return v
}

// follows reports whether a field has the value that deciding gives it anyway.
func (e *exporter) follows(o log.Object, field string) bool {
	switch o := o.(type) {
	case *log.VM:
		return field == "zonename" && o.Zonename == o.UUID.String()
	case *log.NIC:
		if field != "cn_uuid" {
			return false
		}
		if o.BelongsToType == "server" {
			return true
		}
		rec, ok := e.state.Get(log.KindVM, o.BelongsToUUID.String())
		return ok && o.BelongsToType == "zone" && rec.Object.(*log.VM).ServerUUID == o.CNUUID
	case *log.IP:
		return field == "owner_uuid" && e.view.NICAt(o.NetworkUUID, o.IP) != nil && e.view.NICAt(o.NetworkUUID, o.IP).OwnerUUID == o.OwnerUUID
	}
	return false
}

// isForeign reports whether deciding takes the owner of an object only if it is asked to,
// because its network has other owners.
func (e *exporter) isForeign(o log.Object) bool {
	var network, owner log.UUID
	switch o := o.(type) {
	case *log.NIC:
		if o.BelongsToType != "zone" {
			return false
		}
		network, owner = o.NetworkUUID, o.OwnerUUID
	case *log.IP:
		network, owner = o.NetworkUUID, o.OwnerUUID
	}
	n := e.view.Network(network)
	return n != nil && !owner.IsZero() && len(n.OwnerUUIDs) > 0 && !slices.Contains(n.OwnerUUIDs, owner)
}

// refer writes an id as a name, where the field refers to objects that have names.
func (e *exporter) refer(o log.Object, f Field, id string) any {
	switch {
	case f.Refers == 0 || f.Refers == log.KindNICTag:
		return id
	case f.Refers == log.KindNetwork && o.Kind() == log.KindNIC:
		return e.dir.reference(id, log.KindNetwork, log.KindNetworkPool)
	}
	return e.dir.reference(id, f.Refers)
}

// structure writes JSON as it is, without secrets. A text that is no JSON, as an old log
// may have it, is left out: no server would take it.
func (e *exporter) structure(o log.Object, text string) any {
	v, ok := fromJSON(text)
	if fields, is := v.(map[string]any); is && o.Kind() == log.KindVM {
		for _, name := range Secrets {
			delete(fields, name)
		}
		if len(fields) == 0 {
			return nil
		}
	}
	if !ok {
		return nil
	}
	return v
}

// routes are those that a network has of its own.
func (e *exporter) routes(n *log.Network) any {
	given := routedBy(e.state, n.UUID)
	own := make(map[string]any)
	for _, route := range n.Routes {
		if !slices.Contains(given, route) {
			own[route.Dst] = route.Gateway
		}
	}
	if len(own) == 0 {
		return nil
	}
	return own
}

// Withheld counts the selected VMs that have Secrets, which Export leaves out.
func Withheld(state *projections.State, selection Selection) (n int) {
	for rec := range state.List(log.KindVM) {
		vm := rec.Object.(*log.VM)
		if !selection.Has(vm) {
			continue
		}
		v, _ := fromJSON(vm.Properties)
		fields, _ := v.(map[string]any)
		if slices.ContainsFunc(Secrets, func(name string) bool { _, has := fields[name]; return has }) {
			n++
		}
	}
	return n
}
