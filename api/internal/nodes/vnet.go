package nodes

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// Bounds of an answer about a vnet.
const (
	defaultVNetCNs = 1000
	maxVNetCNs     = 2000
	// maxVNetNetworks bounds the networks that are listed.
	maxVNetNetworks = 1000
	// maxVNet is the largest id (24 bits of VXLAN).
	maxVNet = 1<<24 - 1
)

// VNet is a vnet in an answer: how far its links are on each CN.
type VNet struct {
	ID  uint32  `json:"vnet_id"`
	Seq log.Seq `json:"seq"` // of the log's state
	// Networks are at most 1000, by name; NetworksAll is how many there are.
	Networks    []VNetNetwork `json:"networks"`
	NetworksAll int           `json:"networks_total"`
	NICs        int           `json:"nics"`
	Unplaced    int           `json:"unplaced"` // NICs on no CN
	Links       LinkStates    `json:"links"`    // of all CNs
	CNs         []VNetCN      `json:"cns"`      // those that need a look first, then by host name
	CNsAll      int           `json:"cns_total"`
	// States counts the CNs by their state.
	States map[string]int `json:"states"`
	// Trouble says why sessions are known of this server only.
	Trouble string `json:"trouble,omitempty"`
}

// VNetNetwork is a network of a vnet.
type VNetNetwork struct {
	UUID   log.UUID `json:"uuid"`
	Name   string   `json:"name"`
	Subnet string   `json:"subnet"`
	VLAN   uint32   `json:"vlan_id"`
	NICs   int      `json:"nics"`
}

// LinkStates counts links by state: they are in the kernel; their entry is not there yet;
// they cannot be made; their VMs are not to run; it is not known, because the CN has no session.
type LinkStates struct {
	Programmed int `json:"programmed"`
	Behind     int `json:"behind"`
	Failing    int `json:"failing"`
	Idle       int `json:"idle"`
	Unknown    int `json:"unknown"`
}

// States of a CN on a vnet.
const (
	vnetProgrammed = "programmed"
	vnetBehind     = "behind"
	vnetFailing    = "failing"
	vnetUnknown    = "unknown"
)

// VNetCN is a CN with NICs on a vnet.
type VNetCN struct {
	CN         log.UUID   `json:"cn_uuid"`
	Hostname   string     `json:"hostname,omitempty"`
	Datacenter string     `json:"datacenter,omitempty"`
	State      string     `json:"state"` // the worst of its links: failing, unknown, behind or programmed
	Why        string     `json:"why,omitempty"`
	Server     string     `json:"server,omitempty"` // of its session
	Programmed log.Seq    `json:"programmed,omitempty"`
	BehindMS   int64      `json:"lag_ms"`
	Underlay   netip.Addr `json:"underlay_ip,omitzero"` // not there: packets of the vnet cannot reach it
	NICs       int        `json:"nics"`
	Networks   int        `json:"networks"` // of the vnet, with NICs there
	Links      LinkStates `json:"links"`
	// Listed is false if more objects wait than the session names: then Links.Failing and
	// Idle count too few, and Programmed too many.
	Listed bool `json:"listed"`

	networks map[log.UUID]bool
	session  *Session
	nic      map[log.MAC]bool // that waits; true: its VM is not to run
}

// vnet answers GET /vnets/ID.
func (s *Routes) vnet(w http.ResponseWriter, r *http.Request) error {
	id, err := strconv.ParseUint(r.PathValue("vnet"), 10, 32)
	if err != nil || id == 0 || id > maxVNet {
		return rest.BadParameter("vnet", log.ElementInvalid, "send the number of a vnet: GET /networks?fabric=true lists them as vnet_id", "%q is none", r.PathValue("vnet"))
	}
	p, err := rest.Query(r, "limit", "offset")
	if err != nil {
		return err
	}
	limit, err := p.Number("limit", defaultVNetCNs, 1, maxVNetCNs)
	if err != nil {
		return err
	}
	offset, err := p.Number("offset", 0, 0, 1<<30)
	if err != nil {
		return err
	}
	if err := s.cfg.Fresh(r, p); err != nil {
		return err
	}
	v := s.vnetOf(r.Context(), uint32(id))
	if v.NetworksAll == 0 {
		return rest.Fail(http.StatusNotFound, log.CodeResourceNotFound, "GET /networks?fabric=true lists the fabric networks with their vnet_id", "no network has vnet %d", id)
	}
	v.CNs = v.CNs[min(int(offset), len(v.CNs)):]
	v.CNs = v.CNs[:min(int(limit), len(v.CNs))]
	rest.SetSeq(w, v.Seq)
	rest.WriteJSON(w, r, http.StatusOK, v)
	return nil
}

func (s *Routes) vnetOf(ctx context.Context, id uint32) *VNet {
	v := &VNet{ID: id, Networks: []VNetNetwork{}, CNs: []VNetCN{}, States: map[string]int{}}
	head := s.store.Head().Seq
	sessions, err := s.Everywhere(ctx, head)
	if err != nil { // without a leader: the sessions of this server
		sessions, v.Trouble = s.Here(head, s.cfg.ServerID()), "sessions with other servers are not known: "+err.Error()
	}
	byCN := make(map[log.UUID]*Session, len(sessions))
	for i := range sessions {
		byCN[sessions[i].CN] = &sessions[i]
	}
	s.store.View(func(state *projections.State, at log.Cursor) {
		v.Seq = at.Seq
		v.fill(state, byCN)
	})
	slices.SortFunc(v.Networks, func(a, b VNetNetwork) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.UUID.Compare(b.UUID)) })
	v.Networks = v.Networks[:min(len(v.Networks), maxVNetNetworks)]
	order := map[string]int{vnetFailing: 0, vnetUnknown: 1, vnetBehind: 2, vnetProgrammed: 3}
	slices.SortFunc(v.CNs, func(a, b VNetCN) int {
		return cmp.Or(cmp.Compare(order[a.State], order[b.State]), cmp.Compare(a.Hostname, b.Hostname), a.CN.Compare(b.CN))
	})
	return v
}

// fill counts the NICs of the vnet.
func (v *VNet) fill(state *projections.State, sessions map[log.UUID]*Session) {
	networks, cns := map[log.UUID]*VNetNetwork{}, map[log.UUID]*VNetCN{}
	changed := map[log.UUID]log.Seq{} // of each network
	for rec := range state.List(log.KindNetwork) {
		if n := rec.Object.(*log.Network); n.Fabric && n.VNetID == v.ID {
			networks[n.UUID] = &VNetNetwork{UUID: n.UUID, Name: n.Name, Subnet: n.Subnet.String(), VLAN: uint32(n.VLANID)}
			changed[n.UUID] = rec.Seq
		}
	}
	for rec := range state.NICsOnVNet(v.ID) {
		nic := rec.Object.(*log.NIC)
		v.NICs++
		if n := networks[nic.NetworkUUID]; n != nil {
			n.NICs++
		}
		if nic.CNUUID.IsZero() {
			v.Unplaced++
			continue
		}
		cn := cns[nic.CNUUID]
		if cn == nil {
			cn = newVNetCN(state, nic.CNUUID, sessions[nic.CNUUID])
			cns[nic.CNUUID] = cn
		}
		cn.NICs++
		cn.networks[nic.NetworkUUID] = true
		cn.count(nic, max(rec.Seq, changed[nic.NetworkUUID]))
	}
	for _, n := range networks {
		v.Networks = append(v.Networks, *n)
	}
	for _, cn := range cns {
		cn.judge()
		v.States[cn.State]++
		v.Links.add(&cn.Links)
		v.CNs = append(v.CNs, *cn)
	}
	v.NetworksAll, v.CNsAll = len(v.Networks), len(v.CNs)
}

func newVNetCN(state *projections.State, id log.UUID, session *Session) *VNetCN {
	cn := &VNetCN{CN: id, Listed: true, networks: map[log.UUID]bool{}, nic: map[log.MAC]bool{}}
	if rec, ok := state.Get(log.KindServer, id.String()); ok {
		server := rec.Object.(*log.Server)
		cn.Hostname, cn.Datacenter = server.Hostname, server.Datacenter
	}
	if under, ok := state.UnderlayOf(id); ok {
		cn.Underlay = under.Addr
	}
	cn.seenBy(session)
	return cn
}

// seenBy takes what a session says; nil: there is none.
func (cn *VNetCN) seenBy(session *Session) {
	if cn.session = session; session == nil {
		return
	}
	cn.Server, cn.Programmed, cn.BehindMS = session.Server, session.Programmed, session.BehindMS
	cn.Listed = session.Waiting+session.Idle <= len(session.Waits)
	for i := range session.Waits {
		if w := &session.Waits[i]; w.NIC != nil {
			cn.nic[*w.NIC] = w.Idle
		}
	}
}

// count adds a link that follows from entries up to seq.
func (cn *VNetCN) count(nic *log.NIC, seq log.Seq) {
	idle, waits := cn.nic[nic.MAC]
	switch {
	case cn.session == nil || cn.session.Gone:
		cn.Links.Unknown++
	case waits && idle:
		cn.Links.Idle++
	case waits:
		cn.Links.Failing++
	case seq <= max(cn.session.Programmed, cn.session.Reached):
		cn.Links.Programmed++
	default:
		cn.Links.Behind++
	}
}

// judge sets the state of the CN.
func (cn *VNetCN) judge() {
	cn.Networks = len(cn.networks)
	switch s := cn.session; {
	case cn.Links.Failing > 0:
		cn.State, cn.Why = vnetFailing, "its kernel does not have all links that the log gives it"
	case s == nil:
		cn.State, cn.Why = vnetUnknown, "no session since the leader was elected"
	case s.Gone:
		cn.State, cn.Why = vnetUnknown, "its session has ended"
	case cn.Links.Behind > 0:
		cn.State, cn.Why = vnetBehind, "its kernel does not have the newest entries yet"
	default:
		cn.State = vnetProgrammed
	}
	if !cn.Underlay.IsValid() {
		cn.Why = "it has no underlay address: packets of the vnet cannot reach it"
		if cn.State == vnetProgrammed {
			cn.State = vnetFailing
		}
	}
}

func (l *LinkStates) add(o *LinkStates) {
	l.Programmed, l.Behind, l.Failing, l.Idle, l.Unknown = l.Programmed+o.Programmed, l.Behind+o.Behind, l.Failing+o.Failing, l.Idle+o.Idle, l.Unknown+o.Unknown
}
