// Package reach decides at which addresses servers send requests to compute nodes (CNs),
// and has the only HTTP client that does.
//
// Such an address comes from a node's own words: its sysinfo, or a NIC that it made. So a
// node that lies, or a tenant's program that sends a sysinfo, must not be able to make a
// server send requests where it likes: to the metadata service of the machine, to a
// service on loopback, to another server. An address is good if it lies in a network that
// an operator named: the network admin of the log, or one of Config.Networks. Loopback and
// link-local addresses, and those of servers, are good only if Config.Networks names them
// as such.
//
// The decision is made for each request, on the address to which it goes, and not only
// when the address is stored. Redirects are not followed, and no proxy is used.
package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// Admin is what an operator calls the network on which servers reach CNs, or the NIC tag
// that it is on, as in Triton.
const Admin = "admin"

// ErrRefused: nothing was sent, since servers send nothing to the address.
var ErrRefused = errors.New("reach: servers send nothing to this address")

// Config configures a Gate. View must be given.
type Config struct {
	// View calls fn with the state, while nothing is applied.
	View func(fn func(state *projections.State, head log.Cursor))
	// Networks are those that the operator of this server named beside the network admin.
	Networks []netip.Prefix
	// Servers returns the addresses of this server and of the others. Those of this
	// machine's network interfaces are among them without it. nil: none beside those.
	Servers func() []netip.Addr
}

// Gate decides. It is safe for concurrent use.
type Gate struct{ cfg Config }

// New returns a gate.
func New(cfg Config) *Gate { return &Gate{cfg: cfg} }

// Refuses returns why no request for a CN is sent to an address; "" if they are sent.
func (g *Gate) Refuses(cn log.UUID, address netip.Addr) (why string) {
	if address = address.Unmap(); !address.IsValid() || address.Zone() != "" || address.IsUnspecified() || address.IsMulticast() {
		return fmt.Sprintf("%s is no address of a node", address)
	}
	named, why := g.named(address)
	g.cfg.View(func(state *projections.State, _ log.Cursor) {
		for r := range state.List(log.KindNetwork) {
			network := r.Object.(*log.Network)
			if network.Fabric || !network.Subnet.Contains(address) {
				continue
			}
			if why == "" && (network.Name == Admin || network.NICTag == Admin) {
				named = true
			}
			if other := holder(state, network, cn, address); other != "" && why == "" {
				why = fmt.Sprintf("%s is %s", address, other)
			}
		}
	})
	if why == "" && !named {
		why = fmt.Sprintf("%s is in no network that an operator named: not in the network %s, and in none of --cn-network", address, Admin)
	}
	return why
}

// named reports whether Config.Networks has an address, and returns why it is refused
// whatever the log has.
func (g *Gate) named(address netip.Addr) (named bool, why string) {
	servers, err := g.servers()
	if err != nil {
		return false, fmt.Sprintf("this machine's own addresses cannot be read: %v", err)
	}
	var of func(p netip.Prefix) bool // the prefixes that name such an address
	sort := ""
	switch {
	case address.IsLoopback():
		of, sort = func(p netip.Prefix) bool { return p.Addr().IsLoopback() }, "a loopback address"
	case address.IsLinkLocalUnicast():
		of, sort = func(p netip.Prefix) bool { return p.Addr().IsLinkLocalUnicast() }, "a link-local address"
	case slices.Contains(servers, address):
		of, sort = netip.Prefix.IsSingleIP, "the address of a server"
	default:
		of = func(netip.Prefix) bool { return true }
	}
	named = slices.ContainsFunc(g.cfg.Networks, func(p netip.Prefix) bool { return p.Contains(address) && of(p) })
	if sort != "" && !named {
		why = fmt.Sprintf("%s is %s, which no --cn-network names as such", address, sort)
	}
	return named, why
}

// servers are the addresses of servers.
func (g *Gate) servers() (all []netip.Addr, err error) {
	if g.cfg.Servers != nil {
		all = g.cfg.Servers()
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				all = append(all, ip.Unmap())
			}
		}
	}
	return all, nil
}

// holder says whose an address of a network is, if it is not a CN's; else "".
func holder(state *projections.State, network *log.Network, cn log.UUID, address netip.Addr) string {
	if address == network.Gateway || slices.Contains(network.Resolvers, address) {
		return "the gateway or a resolver of network " + network.ID()
	}
	if r, ok := state.NICAt(network.UUID, address); ok {
		if nic := r.Object.(*log.NIC); nic.BelongsToUUID != cn {
			return "that of NIC " + nic.ID() + ", which belongs to " + nic.BelongsToType + " " + nic.BelongsToUUID.String()
		}
		return ""
	}
	if r, ok := state.Get(log.KindIP, log.IPID(network.UUID, address)); ok {
		if ip := r.Object.(*log.IP); ip.BelongsToUUID != cn {
			return "reserved on network " + network.ID()
		}
	}
	return ""
}

// Client sends requests to CNs. It is safe for concurrent use.
type Client struct {
	gate *Gate
	http http.Client
}

// Client returns a client of the gate. transport carries its requests; nil is a plain one.
// A proxy that it has is not used.
func (g *Gate) Client(transport http.RoundTripper) *Client {
	if transport == nil {
		transport = &http.Transport{MaxIdleConnsPerHost: 1}
	}
	if own, ok := transport.(*http.Transport); ok {
		own.Proxy = nil
	}
	// A redirect leads to another address than the one that was decided on.
	return &Client{g, http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Refuses is Gate.Refuses.
func (c *Client) Refuses(cn log.UUID, address netip.Addr) (why string) {
	return c.gate.Refuses(cn, address)
}

// CloseIdleConnections closes the connections that carry no request.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// cnKey is the context key of the CN to which a request goes.
type cnKey struct{}

// CN returns the CN to which a request of a Client goes, so that its connection can
// verify the CN's certificate: an address does not prove an identity.
func CN(ctx context.Context) (cn log.UUID, ok bool) {
	cn, ok = ctx.Value(cnKey{}).(log.UUID)
	return cn, ok
}

// Do sends a request to a CN. Its URL has an address, not a name. The caller closes the
// body of the answer. Errors: ErrRefused, and those of http.Client.
func (c *Client) Do(cn log.UUID, r *http.Request) (*http.Response, error) {
	to, err := netip.ParseAddrPort(r.URL.Host)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is not ADDRESS:PORT", ErrRefused, r.URL.Host)
	}
	if why := c.gate.Refuses(cn, to.Addr()); why != "" {
		return nil, fmt.Errorf("%w: %s", ErrRefused, why)
	}
	return c.http.Do(r.WithContext(context.WithValue(r.Context(), cnKey{}, cn)))
}
