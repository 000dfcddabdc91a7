// Package naming says which object a text names: a UUID or a MAC, the beginning of one, or
// a name, an alias, a hostname or an address. Servers and commands resolve names here, in
// the present state or a past one.
//
// It is pure: no clock, goroutine, file or socket. All that is here may be called
// concurrently while the state does not change.
package naming

import (
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// Bounds of names.
const (
	// MinPrefix is how many hexadecimal digits of a UUID or a MAC name an object at least.
	MinPrefix = 4
	// MaxFound bounds the objects that an answer lists.
	MaxFound = 10
	// MaxText bounds a name in bytes.
	MaxText = 512
)

// Match is an object that a text names.
type Match struct {
	Kind  log.Kind `json:"kind"`
	ID    string   `json:"id"`
	Name  string   `json:"name,omitempty"` // as people know it
	Owner log.UUID `json:"owner_uuid,omitzero"`
	By    string   `json:"by"` // id, name, address or prefix
	ETag  string   `json:"etag"`
	// VNet is that of a fabric network.
	VNet uint32 `json:"vnet_id,omitempty"`
}

// Found are the objects that a text names: none, the one, or several, of which at most
// MaxFound are listed.
type Found struct {
	Matches []Match `json:"found"`
	More    bool    `json:"more,omitempty"` // there are others
}

// Kinds are the kinds whose objects are found by names, when the text may mean any.
var Kinds = []log.Kind{
	log.KindNetwork, log.KindVM, log.KindServer, log.KindNIC, log.KindNetworkPool, log.KindRouter, log.KindFabricVLAN, log.KindAggregation, log.KindNICTag, log.KindVMM,
}

// IsID returns the id that a text is, in the log's form, if it has the whole form of an id
// of the kind. Such a text never means anything else: an object whose name looks like the
// id of another is not found by it.
func IsID(kind log.Kind, text string) (id string, is bool) {
	switch kind.Describe().IDForm {
	case log.IDMAC:
		mac, err := log.ParseMAC(text)
		return mac.String(), err == nil
	case log.IDText, log.IDPair:
		return text, true
	}
	uuid, err := log.ParseUUID(text)
	return uuid.String(), err == nil
}

// Resolve returns what text names among the objects of kinds that sees reports: by the
// whole id, which never means anything else; by the exact name, where OWNER/NAME is the
// name with the UUID of its owner, and a NIC or a VMM has the name of its VM; by an address
// or a MAC that a NIC has, which also names its VM or server; and by at least MinPrefix
// digits that begin the id. None of the latter wins over another: who names an object like
// the beginning of the id of another, or like its address, makes the text ambiguous, and
// takes nothing that is meant for the other. sees may be nil: everything is seen.
func Resolve(s *projections.State, kinds []log.Kind, text string, sees func(log.Object) bool) Found {
	r := &resolver{s: s, text: text, sees: sees}
	if text == "" || len(text) > MaxText {
		return r.Found
	}
	for _, kind := range kinds {
		id, is := IsID(kind, text)
		if !is {
			continue
		}
		if rec, ok := s.Get(kind, id); ok {
			r.add(rec, "id")
		}
	}
	_, uuid := IsID(log.KindVM, text)
	_, mac := IsID(log.KindNIC, text)
	if uuid || mac && (len(r.Matches) > 0 || slices.Equal(kinds, []log.Kind{log.KindNIC})) {
		return r.Found // only ever an id
	}
	for _, stage := range []func(log.Kind){r.byName, r.byAddress, r.byPrefix} {
		for _, kind := range kinds {
			stage(kind)
		}
	}
	return r.Found
}

type resolver struct {
	s    *projections.State
	text string
	sees func(log.Object) bool
	Found
}

// add adds an object, unless it is not seen or found already.
func (r *resolver) add(rec projections.Record, by string) {
	o := rec.Object
	if r.sees != nil && !r.sees(o) {
		return
	}
	if slices.ContainsFunc(r.Matches, func(m Match) bool { return m.Kind == o.Kind() && m.ID == o.ID() }) {
		return
	}
	if len(r.Matches) == MaxFound {
		r.More = true
		return
	}
	m := Match{Kind: o.Kind(), ID: o.ID(), Name: projections.PlainName(o), By: by, ETag: rec.ETag(), Owner: ownerOf(o)}
	switch o := o.(type) {
	case *log.NIC:
		m.Name = r.nameOfVM(o.BelongsToUUID)
	case *log.VMM:
		m.Name = r.nameOfVM(o.InstanceID)
	case *log.Network:
		if o.Fabric {
			m.VNet = o.VNetID
		}
	}
	r.Matches = append(r.Matches, m)
}

func (r *resolver) nameOfVM(id log.UUID) string {
	vm := r.s.VM(id)
	if vm == nil || r.sees != nil && !r.sees(vm) {
		return ""
	}
	return vm.Alias
}

// ownerOf returns the owner of an object; zero if it has none, or several.
func ownerOf(o log.Object) (owner log.UUID) {
	for _, field := range []string{"owner_uuid", "owner_uuids"} {
		if texts := log.FieldTexts(o, field); len(texts) == 1 {
			owner, _ = log.ParseUUID(texts[0])
		}
	}
	return owner
}

func (r *resolver) byName(kind log.Kind) {
	switch kind {
	case log.KindNIC:
		for vm := range projections.Named(log.KindVM, r.text).Records(r.s) {
			if r.sees == nil || r.sees(vm.Object) {
				r.each(r.s.NICsOf(vm.Object.(*log.VM).UUID), "name")
			}
		}
	case log.KindVMM:
		for vm := range projections.Named(log.KindVM, r.text).Records(r.s) {
			if r.sees == nil || r.sees(vm.Object) {
				r.each(r.s.VMMsOf(vm.Object.(*log.VM).UUID), "name")
			}
		}
	default:
		r.each(projections.Named(kind, r.text).Records(r.s), "name")
	}
	owner, name, qualified := strings.Cut(r.text, "/")
	if id, err := log.ParseUUID(owner); qualified && err == nil && len(r.Matches) == 0 {
		for rec := range projections.Named(kind, name).Records(r.s) {
			if slices.Contains(append(log.FieldTexts(rec.Object, "owner_uuid"), log.FieldTexts(rec.Object, "owner_uuids")...), id.String()) {
				r.add(rec, "name")
			}
		}
	}
}

func (r *resolver) each(records func(func(projections.Record) bool), by string) {
	for rec := range records {
		if r.add(rec, by); r.More {
			return
		}
	}
}

// byAddress finds a NIC by its MAC or its address, and the VM or the server that it
// belongs to; a server by its admin_ip, too.
func (r *resolver) byAddress(kind log.Kind) {
	if kind != log.KindNIC && kind != log.KindVM && kind != log.KindServer {
		return
	}
	if mac, err := log.ParseMAC(r.text); err == nil {
		if rec, ok := r.s.Get(log.KindNIC, mac.String()); ok {
			r.nicOf(kind, rec)
		}
		return
	}
	ip, err := netip.ParseAddr(r.text)
	if err != nil || ip.Zone() != "" {
		return
	}
	ip = ip.Unmap()
	if kind == log.KindServer {
		r.each(projections.ServersAt(ip).Records(r.s), "address")
	}
	for rec := range r.s.List(log.KindNetwork) {
		if network := rec.Object.(*log.Network); network.Subnet.Contains(ip) {
			if nic, ok := r.s.NICAt(network.UUID, ip); ok {
				r.nicOf(kind, nic)
			}
		}
	}
}

// nicOf adds a NIC, or what it belongs to, if the NIC itself is seen.
func (r *resolver) nicOf(kind log.Kind, rec projections.Record) {
	nic := rec.Object.(*log.NIC)
	switch {
	case kind == log.KindNIC:
		r.add(rec, "address")
	case r.sees != nil && !r.sees(nic):
	default:
		if owner, ok := r.s.Get(kind, nic.BelongsToUUID.String()); ok {
			r.add(owner, "address")
		}
	}
}

func (r *resolver) byPrefix(kind log.Kind) {
	switch kind.Describe().IDForm {
	case log.IDText, log.IDPair:
		return
	}
	digits := strings.NewReplacer("-", "", ":", "").Replace(r.text)
	if len(digits) < MinPrefix || strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
		return
	}
	if id := strings.ToLower(r.text); !strings.ContainsAny(id, "-:") {
		r.each(projections.WithPrefix(r.s, kind, digits), "prefix")
		return
	}
	for rec := range projections.WithPrefix(r.s, kind, digits) { // separators are to stand in their places
		if strings.HasPrefix(rec.Object.ID(), strings.ToLower(r.text)) {
			r.add(rec, "prefix")
		}
	}
}
