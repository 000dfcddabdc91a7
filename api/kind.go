package api

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// kindRoute is a kind of object with its path and the filters of its lists.
type kindRoute struct {
	kind log.Kind
	path string
	noun string // the word in NAPI's messages (spec/napi.md section 3.3)
	key  string // the JSON name of its id
	// filters are by query parameter. Each reports whether an object has a value.
	filters map[string]filter
}

// filter reports whether o matches the value of a query parameter.
type filter func(state *projections.State, o log.Object, value string) bool

// kinds are the objects that have paths of their own.
var kinds = func() (all []*kindRoute) {
	for _, kind := range log.Kinds() {
		d := kind.Describe()
		if d.Path == "" {
			continue
		}
		k := &kindRoute{kind: kind, path: d.Path, noun: d.Noun, key: d.IDField, filters: make(map[string]filter)}
		for _, name := range d.Filters {
			k.filters[name] = func(_ *projections.State, o log.Object, value string) bool { return log.FieldHas(o, name, value) }
		}
		maps.Copy(k.filters, derivedFilters[kind])
		all = append(all, k)
	}
	return all
}()

// derivedFilters are filters that are not fields of their kind, or whose field has
// another form in answers than in the log.
var derivedFilters = map[log.Kind]map[string]filter{
	log.KindNetwork: {
		"owner_uuid": func(_ *projections.State, o log.Object, value string) bool {
			return log.FieldHas(o, "owner_uuids", value)
		},
	},
	log.KindNIC: {
		"nic_tag": func(state *projections.State, o log.Object, value string) bool {
			nic := o.(*log.NIC)
			return nicTagOf(nic, networkOf(state, nic)) == value
		},
		"vnet_id": func(state *projections.State, o log.Object, value string) bool {
			network := networkOf(state, o.(*log.NIC))
			return network != nil && network.Fabric && strconv.FormatUint(uint64(network.VNetID), 10) == value
		},
	},
	log.KindVM: {
		"state": func(state *projections.State, o log.Object, value string) bool {
			return vmForm(state, o.(*log.VM)).State == value
		},
	},
}

// filterNames returns the filter parameters of the kind's lists, sorted.
func (k *kindRoute) filterNames() []string {
	names := make([]string, 0, len(k.filters))
	for name := range k.filters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// wanted are the values of one filter; an object matches if it has any of them.
type wanted struct {
	filter filter
	values []string
}

// conditions reads the filters of a query. It refuses an empty value: that is usually a
// variable that was not set.
func (k *kindRoute) conditions(p rest.Parameters) ([]wanted, error) {
	var all []wanted
	for _, name := range k.filterNames() {
		if !p.Has(name) {
			continue
		}
		values := strings.Split(p.Text(name), ",")
		for i, value := range values {
			if value == "" {
				return nil, rest.BadParameter(name, log.ElementInvalid, "send a value, or leave it out", "got an empty value")
			}
			if !strings.HasSuffix(name, "uuid") && !strings.HasSuffix(name, "_id") {
				continue
			}
			if _, err := strconv.ParseUint(value, 10, 32); err == nil {
				continue // vlan_id and vnet_id
			}
			uuid, err := log.ParseUUID(value)
			if err != nil {
				return nil, rest.BadParameter(name, log.ElementInvalid, "send an id as the objects have it; lists are parted by commas", "%v", err)
			}
			values[i] = uuid.String()
		}
		all = append(all, wanted{k.filters[name], values})
	}
	return all, nil
}

func matches(state *projections.State, o log.Object, all []wanted) bool {
	for _, w := range all {
		if !slices.ContainsFunc(w.values, func(value string) bool { return w.filter(state, o, value) }) {
			return false
		}
	}
	return true
}

// walk returns the records that a query can match, by an index if there is one.
func (k *kindRoute) walk(p rest.Parameters) projections.Walk {
	walk := projections.Walk{Kind: k.kind}
	by := func(name string, id *log.UUID) (ok bool) {
		uuid, err := log.ParseUUID(p.Text(name)) // a list of values has no index
		if err == nil {
			*id = uuid
		}
		return err == nil
	}
	switch k.kind {
	case log.KindNIC:
		if by("belongs_to_uuid", &walk.BelongsTo) || by("network_uuid", &walk.Network) || by("cn_uuid", &walk.CN) {
			return walk
		}
		if vnet, err := strconv.ParseUint(p.Text("vnet_id"), 10, 24); err == nil {
			walk.VNet = uint32(vnet)
		}
	case log.KindNetwork:
		if tag := p.Text("nic_tag"); !strings.Contains(tag, ",") {
			walk.Tag = tag
		}
	case log.KindVM:
		by("server_uuid", &walk.CN)
	case log.KindVMM:
		_ = by("sled_id", &walk.CN) || by("instance_id", &walk.BelongsTo)
	}
	return walk
}
