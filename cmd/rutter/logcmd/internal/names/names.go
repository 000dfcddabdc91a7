// Package names finds the names of networks, VMs and compute nodes by their UUIDs, for
// what people read: in a cluster or in a folder.
package names

import (
	"context"

	"rutter/api/client"
	"rutter/log"
	"rutter/raftstore/history"
)

// maxNames bounds the objects that one command looks up for their names: more UUIDs stay
// without names.
const maxNames = 512

// Finder finds the names of what UUIDs name, as they are now. Each is looked up once.
type Finder struct {
	find  func(kind log.Kind, id string) (name string)
	known map[string]string
}

// namedBy are the kinds that the UUID of a field may name.
var namedBy = map[string][]log.Kind{
	"network_uuid":    {log.KindNetwork},
	"networks":        {log.KindNetwork},
	"vm_uuid":         {log.KindVM},
	"instance_id":     {log.KindVM},
	"belongs_to_uuid": {log.KindVM, log.KindServer},
	"server_uuid":     {log.KindServer},
	"cn_uuid":         {log.KindServer},
	"sled_id":         {log.KindServer},
}

// Name implements line.Options.Names.
func (n *Finder) Name(field, uuid string) string {
	for _, kind := range namedBy[field] {
		if name := n.Of(kind, uuid); name != "" {
			return name
		}
	}
	return ""
}

// Of returns the name of a network, a VM or a server; "" if it is not known.
func (n *Finder) Of(kind log.Kind, id string) string {
	if _, err := log.ParseUUID(id); err != nil {
		return ""
	}
	key := kind.String() + " " + id
	name, ok := n.known[key]
	if !ok && len(n.known) < maxNames {
		name = n.find(kind, id)
		n.known[key] = name
	}
	return name
}

// Own is an object's own name, "" if its kind has none.
func Own(o log.Object) string {
	switch o := o.(type) {
	case *log.Network:
		return o.Name
	case *log.VM:
		return o.Alias
	case *log.Server:
		return o.Hostname
	case *log.Router:
		return o.Name
	}
	return ""
}

// OfServers asks the servers. A failure is a name that is not known: the answer of
// the command does not depend on it.
func OfServers(ctx context.Context, api *client.Client) *Finder {
	find := func(kind log.Kind, id string) string {
		raw, err := api.Get(ctx, "/"+kind.Describe().Path+"/"+id, nil)
		if err != nil {
			return ""
		}
		for _, field := range [...]string{"alias", "hostname", "name"} {
			if name, is := raw[field].(string); is {
				return name
			}
		}
		return ""
	}
	return &Finder{find: find, known: map[string]string{}}
}

// OfFolder reads the newest state of a folder.
func OfFolder(ctx context.Context, f *history.Folder) *Finder {
	find := func(kind log.Kind, id string) string {
		r, ok, err := f.ObjectAt(ctx, history.Ref{Kind: kind, ID: id}, f.Head().Seq)
		if err != nil || !ok {
			return ""
		}
		return Own(r.Object)
	}
	return &Finder{find: find, known: map[string]string{}}
}

// None knows no name.
func None() *Finder {
	return &Finder{find: func(log.Kind, string) string { return "" }, known: map[string]string{}}
}
