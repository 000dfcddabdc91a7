package documents

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// identify finds the ids of the drafts, and turns the names in them into ids: kind by
// kind, because each kind refers only to those before it.
func (r *resolver) identify() {
	for _, kind := range kinds {
		var of []*draft
		for _, d := range r.drafts {
			if d.doc.Kind == kind && !d.bad {
				of = append(of, d)
				r.refer(d)
			}
		}
		claimed := make(map[string]bool)
		for _, d := range of {
			claimed[d.text("uuid")] = true
		}
		for _, d := range of {
			if !d.bad {
				r.identifyOne(d, claimed)
			}
		}
		if kind == log.KindNIC {
			r.identifyNICs(of)
		}
	}
}

// identifyOne finds the id of a draft of any kind except NICs.
func (r *resolver) identifyOne(d *draft, claimed map[string]bool) {
	switch kind := d.doc.Kind; kind {
	case log.KindNIC:
	case log.KindNICTag:
		if !r.needs(d, "name") {
			return
		}
		if other := r.tagWith(d.text("uuid")); other != "" && other != d.doc.Name {
			r.problem(d, "name", "use the name "+log.Quote(other)+", or leave uuid out to make another tag", "NIC tag %q has this uuid, and a tag cannot be renamed", other)
		} else if d.text("uuid") == "" {
			if _, ok := r.state.Get(kind, d.doc.Name); !ok {
				d.set("uuid", "uuid", derivedUUID(kind, "", d.doc.Name).String())
			}
		}
	case log.KindSetting, log.KindGrant:
		r.needs(d, NameField(kind))
	case log.KindIP:
		r.needs(d, "network_uuid", "ip")
	case log.KindAggregation:
		r.needs(d, belongsToUUID, "name")
	case log.KindFabricVLAN:
		r.needs(d, "owner_uuid", "vlan_id")
	default:
		if d.id = d.text("uuid"); d.id == "" {
			d.id = r.byName(d, claimed)
		}
		if d.bad {
			return
		}
		d.set("uuid", "uuid", d.id)
		name, owner := d.doc.Name, d.owner()
		if rec, ok := r.state.Get(kind, d.id); ok {
			if name == "" {
				name = nameOf(rec.Object)
			}
			if owner == "" {
				owner = ownerOf(rec.Object)
			}
		}
		r.dir.declare(kind, name, candidate{kind, d.id, owner})
	}
}

// tagWith returns the name of the NIC tag that has a UUID; "" if none has.
func (r *resolver) tagWith(uuid string) string {
	id, err := log.ParseUUID(uuid)
	if err != nil {
		return ""
	}
	for rec := range r.state.List(log.KindNICTag) {
		if tag, is := rec.Object.(*log.NICTag); is && tag.UUID == id {
			return tag.Name
		}
	}
	return ""
}

// needs notes each of the fields that a draft lacks, by which it would be found.
func (r *resolver) needs(d *draft, fields ...string) bool {
	for _, json := range fields {
		if v := d.fields[json]; v != nil && v != "" {
			continue
		}
		name := json
		switch f, ok := fieldOf(d.doc.Kind, json); {
		case json == NameField(d.doc.Kind):
			name = "name"
		case ok:
			name = f.Name
		}
		r.problem(d, name, "send it", "objects of kind %s are found by it", d.doc.Kind)
	}
	return !d.bad
}

// owner is the owner that a draft names; "" if it names none, or several.
func (d *draft) owner() string {
	if owner := d.text("owner_uuid"); owner != "" {
		return strings.ToLower(owner)
	}
	if owners := d.texts("owner_uuids"); len(owners) == 1 {
		return strings.ToLower(owners[0])
	}
	return ""
}

// byName returns the id of the object that a draft without a UUID means, or of a new one.
func (r *resolver) byName(d *draft, claimed map[string]bool) string {
	kind, owner := d.doc.Kind, d.owner()
	noun := kind.Describe().Noun
	if d.doc.Name == "" {
		r.problem(d, "name", "send one of them", "a %s is found by its name or its uuid", noun)
		return ""
	}
	fabric := d.fields["fabric"] == true
	_, whole := d.fields["subnet"]
	if _, says := d.fields["fabric"]; kind == log.KindNetwork && !says && !whole {
		fabric = r.onlyFabric(d.doc.Name) // it changes a network, because it lacks what a new one needs
	}
	found := slices.DeleteFunc(r.dir.inState(kind, d.doc.Name), func(c candidate) bool {
		rec, _ := r.state.Get(kind, c.id)
		network, _ := rec.Object.(*log.Network)
		switch {
		case claimed[c.id], network != nil && network.Fabric != fabric:
			return true
		case network != nil && !fabric, kind == log.KindServer, kind == log.KindNetworkPool:
			return false // the name is the cloud's, not an owner's
		}
		return owner != "" && c.owner != owner
	})
	if len(found) > 1 && kind == log.KindNetworkPool && owner != "" {
		found = slices.DeleteFunc(found, func(c candidate) bool { return c.owner != owner })
	}
	switch {
	case len(found) > 1:
		r.problem(d, "name", "send the uuid of one: "+ids(found), "%d objects have the name", len(found))
		return ""
	case len(found) == 1:
		return found[0].id
	case kind == log.KindServer:
		r.problem(d, "uuid", "send that of its hardware", "a new server needs one")
		return ""
	}
	if network := kind == log.KindNetwork; network && !fabric || kind == log.KindNetworkPool {
		owner = ""
	}
	id := derivedUUID(kind, owner, d.doc.Name).String()
	if rec, ok := r.state.Get(kind, id); ok {
		r.problem(d, "uuid", fmt.Sprintf("send uuid %s to mean that one, or another name", id), "the %s that this document once made is now %s", noun, describe(kind, nameOf(rec.Object), id))
	}
	return id
}

// onlyFabric reports whether all networks with a name are fabric networks, and there is one.
func (r *resolver) onlyFabric(name string) bool {
	found := r.dir.inState(log.KindNetwork, name)
	return len(found) > 0 && !slices.ContainsFunc(found, func(c candidate) bool {
		rec, _ := r.state.Get(log.KindNetwork, c.id)
		network, is := rec.Object.(*log.Network)
		return !is || !network.Fabric
	})
}

// ids lists candidates.
func ids(found []candidate) string {
	const most = 8
	var all []string
	for _, c := range found[:min(len(found), most)] {
		all = append(all, c.id)
	}
	if len(found) > most {
		all = append(all, fmt.Sprintf("and %d more", len(found)-most))
	}
	return strings.Join(all, ", ")
}

// refer turns the names in a draft into ids.
func (r *resolver) refer(d *draft) {
	for _, f := range log.FieldDocs(d.doc.Kind) {
		v, given := d.fields[f.Name]
		of := r.meant(d, f)
		if !given || v == nil || of == nil || f.Name == UUIDField(d.doc.Kind) {
			continue
		}
		switch v := v.(type) {
		case string:
			d.fields[f.Name] = r.idOf(d, f.Name, v, of)
		case []any:
			for i := range v {
				if text, ok := v[i].(string); ok {
					v[i] = r.idOf(d, f.Name, text, of)
				}
			}
		}
	}
}

// meant are the kinds whose objects a field names; nil: it names none by another word than
// their ids.
func (r *resolver) meant(d *draft, f log.FieldDoc) []log.Kind {
	switch {
	case f.Name == belongsToUUID && d.doc.Kind != log.KindAggregation:
		switch d.text(belongsToType) {
		case "zone":
			return []log.Kind{log.KindVM}
		case "server":
			return []log.Kind{log.KindServer}
		}
		return nil
	case f.Refers == log.KindNICTag:
		return nil
	case f.Refers == log.KindNetwork && d.doc.Kind == log.KindNIC:
		return []log.Kind{log.KindNetwork, log.KindNetworkPool}
	case f.Refers != 0:
		return []log.Kind{f.Refers}
	}
	return nil
}

// idOf returns the id that a text means.
func (r *resolver) idOf(d *draft, json, text string, of []log.Kind) string {
	if uuid, err := log.ParseUUID(text); err == nil {
		return uuid.String()
	}
	noun := of[0].Describe().Noun
	found := r.dir.find(text, of...)
	switch len(found) {
	case 0:
		remedy := "declare it among these documents, create it first, or send its UUID"
		var names []string
		for _, kind := range of {
			names = slices.AppendSeq(names, maps.Keys(r.dir.names(kind)))
		}
		slices.Sort(names)
		if near := Nearest(text, names); near != "" {
			remedy = fmt.Sprintf("did you mean %s? Else %s", log.Quote(near), remedy)
		}
		r.problem(d, d.from[json], remedy, "there is no %s \"%s\"", noun, log.Quote(text))
	case 1:
		return found[0].id
	default:
		r.problem(d, d.from[json], "send OWNER/NAME, or the UUID of one: "+ids(found), "%d objects are called \"%s\"", len(found), log.Quote(text))
	}
	return ""
}

// attachment is what finds a NIC without a MAC: what it belongs to, and its network, or
// the pool that it was to have one of.
type attachment struct{ belongsTo, network string }

// identifyNICs finds the MACs of drafts of NICs.
func (r *resolver) identifyNICs(drafts []*draft) {
	taken := make(map[string]bool)
	groups := make(map[attachment]int)
	at := func(d *draft) attachment { return attachment{d.text(belongsToUUID), d.text("network_uuid")} }
	for _, d := range drafts {
		if mac, err := log.ParseMAC(d.text("mac")); err == nil {
			taken[mac.String()] = true
		} else if d.fields["mac"] == nil {
			groups[at(d)]++
		}
	}
	for _, d := range drafts {
		if d.bad {
			continue
		}
		if d.fields["mac"] == nil {
			where := at(d)
			switch {
			case where.belongsTo == "" || where.network == "":
				r.problem(d, "mac", "send the mac, or what it belongs to (vm or server) and its network", "a nic is found by it")
				continue
			case groups[where] > 1 && d.text("ip") == "":
				r.problem(d, "mac", "send the mac or the ip of each", "%d documents without a mac are about one VM or server and one network", groups[where])
				continue
			}
			mac := r.macOf(d, where, taken)
			if d.bad {
				continue
			}
			taken[mac] = true
			d.set("mac", "mac", mac)
		}
		r.ownNIC(d)
	}
}

// macOf returns the MAC of the NIC that a draft without one means, or of a new one.
func (r *resolver) macOf(d *draft, where attachment, taken map[string]bool) string {
	var found []*log.NIC
	ip := d.text("ip")
	for _, n := range r.attached(where) {
		if ip != "" && n.IP.String() == ip && !taken[n.MAC.String()] {
			return n.MAC.String()
		}
		if !taken[n.MAC.String()] {
			found = append(found, n)
		}
	}
	switch {
	case len(found) == 1 && !r.othersWithIP(d, where, found[0]):
		return found[0].MAC.String()
	case len(found) > 1 && ip == "":
		var macs []string
		for _, n := range found[:min(len(found), 8)] {
			macs = append(macs, n.MAC.String())
		}
		r.problem(d, "mac", "send the mac of one: "+strings.Join(macs, ", "), "%d NICs are of this VM or server and this network", len(found))
		return ""
	}
	for try := 0; ; try++ {
		mac := derivedMAC(where.belongsTo, where.network, ip, try)
		if _, there := r.state.Get(log.KindNIC, mac.String()); !there && !taken[mac.String()] {
			return mac.String()
		}
	}
}

// othersWithIP reports whether a NIC is not the draft's, because another document of the
// same attachment has its address.
func (r *resolver) othersWithIP(d *draft, where attachment, n *log.NIC) bool {
	return slices.ContainsFunc(r.drafts, func(o *draft) bool {
		return o != d && o.doc.Kind == log.KindNIC && o.text(belongsToUUID) == where.belongsTo && o.text("network_uuid") == where.network && o.text("ip") == n.IP.String()
	})
}

// attached are the NICs of the state at an attachment, by their MACs.
func (r *resolver) attached(where attachment) (all []*log.NIC) {
	uuid, err := log.ParseUUID(where.belongsTo)
	if err != nil {
		return nil
	}
	networks := []string{where.network}
	if rec, ok := r.state.Get(log.KindNetworkPool, where.network); ok {
		networks = log.FieldTexts(rec.Object, "networks")
	}
	view := projections.NewOverlay(r.state, false)
	for o := range view.Objects(projections.NICsOf(uuid)) {
		if n := o.(*log.NIC); slices.Contains(networks, n.NetworkUUID.String()) {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b *log.NIC) int { return a.MAC.Compare(b.MAC) })
	return all
}

// ownNIC gives a new NIC of a VM the VM's owner, where its document names none.
func (r *resolver) ownNIC(d *draft) {
	if _, there := r.state.Get(log.KindNIC, d.text("mac")); there || d.fields["owner_uuid"] != nil || d.text(belongsToType) != "zone" {
		return
	}
	vm := d.text(belongsToUUID)
	owner := r.dir.declared[log.KindVM][vm].owner
	if rec, ok := r.state.Get(log.KindVM, vm); ok && owner == "" {
		owner = ownerOf(rec.Object)
	}
	if owner != "" {
		d.set("owner_uuid", "vm", owner)
	}
}
