package view

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/filter"
	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/agent/ports"
	"rutter/projections/desired"
)

const (
	// maxWaiting bounds the requests that wait for their turn; more are refused.
	maxWaiting = 8
	// share is the divisor of the time that all views may take.
	share = 5
	// maxLinks bounds the links of a VM's namespace that are looked at: its root can make
	// any number.
	maxLinks = 1024
)

// ErrBusy: as many requests wait as may.
var ErrBusy = errors.New("view: the node was asked too often: try again in a second")

// Request is a query, with what the agent knows of its NIC.
type Request struct {
	Query     desired.KernelQuery
	VNet      uint32
	VLAN      uint16 // 0: untagged
	Namespace string // of the VM; "" is the node's own
	OnDemand  bool   // the vnet is
}

// Config says where a node's namespaces are.
type Config struct {
	// OwnNamespace is the file of the node's namespace. Default: that of the thread that
	// calls New.
	OwnNamespace string
	// NetNSDir is where the VMs' namespaces are found by name. Default /run/netns.
	NetNSDir string
	// Security is the node's port security; nil: it has none.
	Security ports.Source
}

// Reader makes views.
type Reader struct {
	cfg   Config
	own   *os.File
	queue chan struct{} // a token of each request that waits or is answered
	turn  chan time.Time
}

// New returns a Reader. It must be closed. The error is about the node's own namespace.
func New(cfg Config) (*Reader, error) {
	if cfg.NetNSDir == "" {
		cfg.NetNSDir = "/run/netns"
	}
	path := cfg.OwnNamespace
	if path == "" {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		path = fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
	}
	own, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("view: the node's namespace: %w", err)
	}
	r := &Reader{cfg: cfg, own: own, queue: make(chan struct{}, maxWaiting+1), turn: make(chan time.Time, 1)}
	r.turn <- time.Time{}
	return r, nil
}

// Close frees the namespace. No Read may run.
func (r *Reader) Close() error { return r.own.Close() }

// Read returns a view. What cannot be read is in its Unknown. Errors: ErrBusy, ctx's, and
// that the node's own namespace cannot be read.
func (r *Reader) Read(ctx context.Context, q Request) (desired.KernelView, error) {
	select {
	case r.queue <- struct{}{}:
		defer func() { <-r.queue }()
	default:
		return desired.KernelView{}, ErrBusy
	}
	var earliest time.Time
	select {
	case earliest = <-r.turn:
	case <-ctx.Done():
		return desired.KernelView{}, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
	}
	defer func() { r.turn <- earliest }()
	if wait := time.Until(earliest); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return desired.KernelView{}, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
		}
	}
	began := time.Now()
	v, err := r.read(ctx, &q)
	earliest = time.Now().Add((share - 1) * time.Since(began))
	return v, err
}

func (r *Reader) read(ctx context.Context, q *Request) (desired.KernelView, error) {
	own, err := dial(ctx, r.own)
	if err != nil {
		return desired.KernelView{}, fmt.Errorf("view: the node's namespace: %w", err)
	}
	defer own.Close()
	w := &walk{own: own, q: q, v: desired.KernelView{
		NIC: q.Query.NIC, Namespace: q.Namespace, OnDemand: q.OnDemand, Links: []desired.KernelLink{},
		Addresses: []netip.Prefix{}, Drops: map[string]uint64{}, Underlay: map[string]uint64{},
	}}
	w.rules(ctx, r.cfg.Security)
	host := w.vm(ctx, r.cfg.NetNSDir)
	w.node(host)
	w.security(host)
	return w.v, nil
}

// walk makes one view.
type walk struct {
	own *netlink.Conn
	q   *Request
	v   desired.KernelView
	// state and counts are those of port security, if it is enforced and can be read.
	state    filter.State
	counts   filter.Counters
	enforced bool
}

// unknown notes that a part could not be read.
func (w *walk) unknown(what string, err error) {
	if err != nil && len(w.v.Unknown) < desired.MaxKernelUnknown {
		text := what + ": " + err.Error()
		w.v.Unknown = append(w.v.Unknown, text[:min(len(text), desired.MaxKernelText)])
	}
}

// vm reads the fabric link, and returns its host end, or the tap; nil: it has none. Root of a VM may
// give the link another MAC: with port security it is known by its host end.
func (w *walk) vm(ctx context.Context, folder string) (host *rawLink) {
	host = w.ruled()
	if host != nil && host.kind == plan.KindTap {
		w.v.Namespace = "" // the guest has its other end
		return host
	}
	conn := w.own
	if w.q.Namespace != "" {
		file, err := link.OpenNamespace(folder, w.q.Namespace)
		if err == nil {
			defer file.Close()
			conn, err = dial(ctx, file)
		}
		if errors.Is(err, plan.ErrNoNamespace) {
			return host // no link either
		}
		if err != nil {
			w.unknown("namespace "+w.q.Namespace, err)
			return host
		}
		defer conn.Close()
	}
	l, err := fabricLink(conn, w.q.Query.NIC, host)
	if err != nil || l == nil {
		w.unknown("links of namespace "+w.q.Namespace, err)
		return host
	}
	w.v.Links = append(w.v.Links, l.as(desired.RoleVM))
	if w.v.Addresses, err = addresses(conn, l.index); err != nil {
		w.unknown("addresses of "+l.name, err)
	}
	if ip := w.q.Query.IP; ip.IsValid() {
		n, err := entry(conn, l.index, plan.Entry{IP: ip})
		w.unknown("neighbour "+ip.String(), err)
		if n != nil {
			w.v.Neighbour = &desired.KernelNeigh{MAC: n.MAC, State: stateName(n.State)}
		}
	}
	if l.kind != kindVeth || host != nil {
		return host
	}
	// A guest can make a pair of its own, whose other end has any ifindex.
	host, err = linkAt(w.own, l.peer)
	if w.unknown("the host end of "+l.name, err); host != nil && (host.kind != kindVeth || host.peer != l.index) {
		return nil
	}
	return host
}

// node reads what is below the fabric link in the node's namespace.
func (w *walk) node(host *rawLink) {
	if host != nil {
		found := host.as(desired.RoleHost)
		if host.kind == plan.KindTap {
			found.Role, found.Closed = desired.RoleTap, !host.running
		}
		var bridge *rawLink
		if host.master != 0 {
			var err error
			bridge, err = linkAt(w.own, host.master)
			w.unknown("the bridge of "+host.name, err)
		}
		if bridge == nil {
			w.v.Links = append(w.v.Links, found)
		} else {
			found.Master = bridge.name
			w.v.Links = append(w.v.Links, found, bridge.as(desired.RoleBridge))
		}
	}
	if w.q.VLAN != 0 {
		name := plan.VLANName(w.q.VNet, w.q.VLAN)
		l, err := linkNamed(w.own, name)
		w.unknown(name, err)
		if l != nil {
			w.v.Links = append(w.v.Links, l.as(desired.RoleVLAN))
		}
	}
	name := plan.VXLANName(w.q.VNet)
	l, err := linkNamed(w.own, name)
	w.unknown(name, err)
	if l == nil {
		return
	}
	w.v.Links = append(w.v.Links, l.as(desired.RoleVXLAN))
	if w.q.Query.VTEP.IsValid() {
		f, err := entry(w.own, l.index, plan.Entry{MAC: w.q.Query.MAC})
		w.unknown("forwarding entry "+w.q.Query.MAC.String(), err)
		if f != nil {
			w.v.Forward = &desired.KernelForward{VTEP: f.Dst, Port: f.Port}
		}
	}
}

// rules reads the rules of port security, and what they dropped.
func (w *walk) rules(ctx context.Context, source ports.Source) {
	s := &w.v.Security
	s.Mode = desired.SecurityOff
	if source == nil {
		return
	}
	mode := source.Mode()
	if s.Mode, s.Why = mode.Mode, mode.Why; s.Mode != desired.SecurityEnforced {
		return
	}
	var err error
	if w.state, err = source.State(ctx); err != nil {
		w.unknown("rules of port security", err)
		return
	}
	w.enforced = true
	w.counts, err = source.Counters(ctx)
	w.unknown("drops", err)
}

// ruled returns the host end, or the tap, whose rules are those of the NIC; nil: there is none.
func (w *walk) ruled() *rawLink {
	for i := range w.state.Ports {
		if p := &w.state.Ports[i]; p.MAC == w.q.Query.NIC {
			l, err := linkAt(w.own, int32(p.Index))
			if w.unknown("the host end "+p.Name, err); l != nil && (l.kind == kindVeth || l.kind == plan.KindTap) {
				return l
			}
		}
	}
	return nil
}

// security takes the rules of the port.
func (w *walk) security(host *rawLink) {
	if !w.enforced {
		return
	}
	s := &w.v.Security
	for i := range w.state.Ports {
		if p := &w.state.Ports[i]; host != nil && p.Index == uint32(host.index) {
			s.Rules = &desired.KernelRules{
				Port: p.Name, MAC: p.MAC, Relaxed: ports.Relaxed(p),
				Addresses: p.Addresses[:min(len(p.Addresses), desired.MaxKernelAddresses)],
			}
		}
	}
	add := func(to map[string]uint64, from map[filter.Reason]filter.Count) {
		for reason, c := range from {
			to[string(reason)] = c.Packets
		}
	}
	if host != nil {
		add(w.v.Drops, w.counts.Ports[uint32(host.index)])
	}
	add(w.v.Underlay, w.counts.Underlay)
	if vtep := w.q.Query.VTEP; vtep.IsValid() {
		is := slices.Contains(w.state.Peers, filter.Peer{VTEP: vtep, VNI: w.q.VNet})
		s.Peer = &is
	}
}
