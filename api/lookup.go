package api

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"time"

	"rutter/projections/desired"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/internal/nodes"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// lookupRoutes answer where addresses are, and why one VM reaches another.
type lookupRoutes struct {
	store    backend.Store
	read     *backend.Reader
	sessions sessionLister
	kernels  kernelAsker
}

// sessionLister knows the sessions of compute nodes.
type sessionLister interface {
	// Everywhere asks the leader for all sessions; Here returns those of this server.
	Everywhere(ctx context.Context, head log.Seq) ([]nodes.Session, error)
	Here(head log.Seq, server string) []nodes.Session
}

// kernelAsker asks compute nodes what their kernels have.
type kernelAsker interface {
	AskKernels(ctx context.Context, kernels []desired.TraceKernel, watch time.Duration)
}

func (l *lookupRoutes) routes() []rest.Route {
	return []rest.Route{
		{Method: "GET", Pattern: "/lookup/vl2", Serve: l.lookupVL2},
		{Method: "GET", Pattern: "/lookup/vl3", Serve: l.lookupVL3},
		{Method: "GET", Pattern: "/trace", Serve: l.trace},
	}
}

// lookupForm is the answer to a lookup.
type lookupForm struct {
	VNet         uint32     `json:"vnet"`
	IP           netip.Addr `json:"ip,omitzero"` // of vl3
	MAC          log.MAC    `json:"mac"`
	CN           log.UUID   `json:"cn_uuid"`
	UnderlayIP   netip.Addr `json:"underlay_ip"`
	UnderlayPort uint16     `json:"underlay_port"`
}

func (f *lookupForm) at(u projections.Underlay) {
	f.CN, f.UnderlayIP, f.UnderlayPort = u.CN, u.Addr, u.Port
}

// lookupVL2 answers GET /lookup/vl2?vnet=N&mac=M: the location of a MAC.
func (l *lookupRoutes) lookupVL2(w http.ResponseWriter, r *http.Request) error {
	return l.lookup(w, r, "mac", func(state *projections.State, f *lookupForm, text string) (bool, error) {
		mac, err := log.ParseMAC(text)
		if err != nil {
			return false, rest.BadParameter("mac", log.ElementInvalid, "send a MAC address, as in 90:b8:d0:01:02:03", "%v", err)
		}
		f.MAC = mac
		u, ok := state.VL2(f.VNet, mac)
		f.at(u)
		return ok, nil
	})
}

// lookupVL3 answers GET /lookup/vl3?vnet=N&ip=A: the MAC and location of an address.
func (l *lookupRoutes) lookupVL3(w http.ResponseWriter, r *http.Request) error {
	return l.lookup(w, r, "ip", func(state *projections.State, f *lookupForm, text string) (bool, error) {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return false, rest.BadParameter("ip", log.ElementInvalid, "send an IP address", "%v", err)
		}
		f.IP = ip
		mac, u, ok := state.VL3(f.VNet, ip)
		f.MAC = mac
		f.at(u)
		return ok, nil
	})
}

func (l *lookupRoutes) lookup(w http.ResponseWriter, r *http.Request, name string, find func(*projections.State, *lookupForm, string) (bool, error)) error {
	p, err := rest.Query(r, "vnet", name, "at")
	if err != nil {
		return err
	}
	for _, needed := range [...]string{"vnet", name} {
		if !p.Has(needed) {
			return rest.BadParameter(needed, log.ElementMissing, "send ?vnet=N&"+name+"=…", "%s is missing", needed)
		}
	}
	vnet, err := p.Number("vnet", 0, 0, log.MaxVNet)
	if err != nil {
		return err
	}
	if err := l.read.Fresh(r, p); err != nil {
		return err
	}
	f := lookupForm{VNet: uint32(vnet)}
	var ok bool
	part := backend.PastPart{VNets: []uint32{uint32(vnet)}}
	if viewErr := l.read.ViewAt(w, r, p, part, func(state *projections.State) {
		if g := guard.GrantOf(r); g.Decision == matrix.Own && !state.Interested(g.Who.UUID, []log.Scope{log.VNetScope(f.VNet)}) {
			return // as if it did not exist
		}
		ok, err = find(state, &f, p.Text(name))
	}); viewErr != nil || err != nil {
		return cmp.Or(viewErr, err)
	}
	if !ok {
		return rest.Fail(http.StatusNotFound, log.CodeResourceNotFound, "there is no such NIC on the vnet, or its CN has no underlay NIC with an address",
			"vnet %d has no way to %s", vnet, p.Text(name))
	}
	rest.WriteJSON(w, r, http.StatusOK, f)
	return nil
}
