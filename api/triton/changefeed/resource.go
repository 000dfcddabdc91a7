package changefeed

import (
	"slices"

	"rutter/log"
)

// Resource is a kind of object that a listener can ask for, and what may happen to it.
type Resource struct {
	Resource string `json:"resource"`
	// SubResources are create, delete, and the fields of the kind; sorted.
	SubResources []string `json:"subResources"`
	// BootstrapRoute is the path at which the objects of the kind are listed.
	BootstrapRoute string `json:"bootstrapRoute"`
}

// published are the kinds of objects that the feed shows. The first four are NAPI's
// (spec/napi.md section 3.5), the others Rutter's.
var published = []struct {
	kind  log.Kind
	route string
	// extras are the fields of the object that stand in its items.
	extras []string
}{
	{log.KindAggregation, "/aggregations", []string{"belongs_to_uuid", "name"}},
	{log.KindNetwork, "/networks", []string{"uuid"}},
	{log.KindNIC, "/nics", []string{"belongs_to_uuid", "cn_uuid", "mac"}},
	{log.KindNICTag, "/nic_tags", []string{"name"}},
	{log.KindNetworkPool, "/network_pools", []string{"name", "uuid"}},
	{log.KindFabricVLAN, "/fabrics", []string{"owner_uuid", "vlan_id", "vnet_id"}},
	{log.KindIP, "/networks", []string{"belongs_to_uuid", "ip", "network_uuid"}},
	{log.KindRouter, "/routers", []string{"name", "uuid"}},
	{log.KindServer, "/servers", []string{"hostname", "uuid"}},
	{log.KindVM, "/vms", []string{"alias", "server_uuid", "uuid"}},
}

// The subresources of objects that come and go.
const (
	subCreate = "create"
	subDelete = "delete"
)

// bookkeeping are fields that change with every change of an object. An item names them
// only if nothing else changed.
var bookkeeping = []string{"modified_timestamp", "last_modified", "last_updated"}

// isBookkeeping reports whether a field is one of those.
func isBookkeeping(path string) bool { return slices.Contains(bookkeeping, path) }

// notTritons reports whether a field is one that Triton's services do not have.
func notTritons(path string) bool { return path == log.FieldLabels }

// resources are what can be asked for, by name; immutable.
var resources = func() map[string]*Resource {
	all := make(map[string]*Resource)
	for _, p := range published {
		r := &Resource{Resource: p.kind.String(), BootstrapRoute: p.route, SubResources: []string{subCreate, subDelete}}
		r.SubResources = append(r.SubResources, log.FieldNames(p.kind)...)
		if p.kind == log.KindVM {
			r.SubResources = vmSubResources()
		}
		r.SubResources = slices.DeleteFunc(r.SubResources, notTritons)
		slices.Sort(r.SubResources)
		all[r.Resource] = r
	}
	return all
}()

// resourceOf returns what can be asked for by a name, or nil.
func resourceOf(name string) *Resource { return resources[name] }

// extrasOf returns the extras of a kind; ok is false if it is not published.
func extrasOf(kind log.Kind) (extras []string, ok bool) {
	for _, p := range published {
		if p.kind == kind {
			return p.extras, true
		}
	}
	return nil, false
}
