package importcmd

import (
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
)

// maxObjects bounds the objects of an installation. A million NICs take about a
// gigabyte of memory.
const maxObjects = 8 << 20

// order is the order of kinds by dependency: later kinds refer to earlier ones.
var order = []log.Kind{
	log.KindNICTag, log.KindFabricVLAN, log.KindNetwork, log.KindNetworkPool,
	log.KindNIC, log.KindAggregation, log.KindRouter, log.KindIP,
}

// record is one object of the source.
type record struct {
	object log.Object
	given  []string // the fields that the source has, sorted
	whole  []string // all fields that the source could have, sorted
	from   string   // where it was read, such as nics.json or /nics
}

// overlay is a row of portolan_vnet_mac_ip (spec/svp.md section 5).
type overlay struct {
	vnet    uint32
	ip      netip.Addr
	mac     log.MAC
	cn      log.UUID
	deleted bool
}

// underlay is a row of portolan_underlay_mappings.
type underlay struct {
	cn   log.UUID
	ip   netip.Addr
	port uint32
}

// installation has the objects of a source.
type installation struct {
	records  map[log.Kind][]record
	places   map[string]int // of records, by kind and id
	overlays []overlay
	under    []underlay
	vnets    map[log.UUID]uint32 // of owners, by napi_fabrics
	problems []problem
	ignored  map[string]int // unknown fields, and how often they occurred
	skipped  []string       // files and buckets without objects for Rutter
	count    int
	names    map[string][]string // lists of field names, each kept once
}

// intern returns the kept copy of a list of names, or keeps this one. A million NICs
// have only a few different lists.
func (in *installation) intern(names []string) []string {
	key := strings.Join(names, ",")
	if same, ok := in.names[key]; ok {
		return same
	}
	in.names[key] = names
	return names
}

func newInstallation() *installation {
	return &installation{
		records: make(map[log.Kind][]record), places: make(map[string]int),
		vnets: make(map[log.UUID]uint32), ignored: make(map[string]int),
		names: make(map[string][]string),
	}
}

// add keeps a record. If it was read before, because pages overlap or two files have
// the same object, it is compared with the first.
func (in *installation) add(r record) {
	kind, id := r.object.Kind(), r.object.ID()
	key := kind.String() + " " + id
	at, there := in.places[key]
	if !there {
		in.places[key] = len(in.records[kind])
		in.records[kind] = append(in.records[kind], r)
		in.count++
		return
	}
	first := in.records[kind][at]
	changed := log.Diff(first.object, r.object)
	changed = slices.DeleteFunc(changed, func(c log.FieldChange) bool { return c.Path == "modified_timestamp" })
	if len(changed) > 0 {
		in.problems = append(in.problems, problem{
			Kind: kind.String(), ID: id, From: r.from, Field: changed[0].Path,
			Message: "it was read before, from " + first.from + ", with another value",
			Remedy:  "the first is taken; run again when it is not being changed, or remove one of the files",
		})
	}
}

// problem is a part of the source that is not imported unchanged.
type problem struct {
	Kind string `json:"kind"`
	ID   string `json:"id,omitempty"`
	From string `json:"from,omitempty"`
	// Left says that the whole object is left out.
	Left    bool   `json:"left"`
	Code    string `json:"code,omitempty"` // of the refusal
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// problemsOf are those of a refusal, one for each field.
func problemsOf(refusal *log.Refusal, kind log.Kind, id, from string) []problem {
	base := problem{Kind: kind.String(), ID: id, From: from, Left: true, Code: refusal.Code, Message: refusal.Message}
	if len(refusal.Errors) == 0 {
		return []problem{base}
	}
	var all []problem
	for _, e := range refusal.Errors {
		p := base
		p.Field, p.Message, p.Remedy = e.Field, e.Message, e.Remedy
		if kind == log.KindNetwork && e.Field == "name" && e.Code == log.ElementDuplicate {
			p.Message = refusal.Message + ": network " + e.ID + " has it"
			p.Remedy = "rename one of them in NAPI, and run again"
		}
		all = append(all, p)
	}
	return all
}
