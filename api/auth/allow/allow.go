package allow

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"rutter/api/auth/matrix"
	"rutter/api/auth/webcheck"
	"rutter/api/internal/rest"
	"rutter/log"
)

// Right is what a source address may do.
type Right uint8

// The rights. Each includes those before it.
const (
	None     Right = iota
	Read           // GET and HEAD
	Write          // everything, except what chooses a program on a compute node
	Programs       // everything
)

// MaxRows bounds a list: each request searches the whole list.
const MaxRows = 256

// List maps networks to rights. The zero value admits no address.
type List struct{ rows []row }

type row struct {
	net   netip.Prefix
	right Right
}

// Parse reads rows of the form CIDR=read, CIDR=write or CIDR=programs. An address without a prefix
// length is a network of one address. A network that is given twice is refused.
func Parse(texts []string) (List, error) {
	var l List
	if len(texts) > MaxRows {
		return l, fmt.Errorf("there are %d rows: at most %d are looked through", len(texts), MaxRows)
	}
	for _, text := range texts {
		r, err := parse(text)
		if err != nil {
			return List{}, fmt.Errorf("%q: %w: want CIDR=read or CIDR=write (or CIDR=programs), as in 10.99.0.0/16=write", text, err)
		}
		if slices.ContainsFunc(l.rows, func(o row) bool { return o.net == r.net }) {
			return List{}, fmt.Errorf("%q: the network is named twice", text)
		}
		l.rows = append(l.rows, r)
	}
	slices.SortStableFunc(l.rows, func(a, b row) int { return b.net.Bits() - a.net.Bits() }) // the narrowest decides
	return l, nil
}

func parse(text string) (r row, err error) {
	network, word, ok := strings.Cut(text, "=")
	if !ok {
		return r, fmt.Errorf("it has no =")
	}
	switch strings.TrimSpace(word) {
	case "read":
		r.right = Read
	case "write":
		r.right = Write
	case "programs":
		r.right = Programs
	default:
		return r, fmt.Errorf("%q is none of read, write and programs", word)
	}
	network = strings.TrimSpace(network)
	if ip, err := netip.ParseAddr(network); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		r.net = netip.PrefixFrom(ip, ip.BitLen())
		return r, nil
	}
	if r.net, err = netip.ParsePrefix(network); err != nil || r.net.Addr().Is4In6() {
		return r, fmt.Errorf("%q is no network", network)
	}
	if r.net.Masked() != r.net {
		return r, fmt.Errorf("%s has host bits: is it %s?", r.net, r.net.Masked())
	}
	return r, nil
}

// Loopback is the list that admits only this machine.
func Loopback() List {
	l, err := Parse([]string{"127.0.0.0/8=write", "::1/128=write"})
	if err != nil {
		panic("allow: " + err.Error())
	}
	return l
}

// Len returns the number of rows.
func (l List) Len() int { return len(l.rows) }

// Of returns what an address may do: the right of the narrowest network that contains
// it.
func (l List) Of(ip netip.Addr) Right {
	ip = ip.Unmap().WithZone("")
	for _, r := range l.rows {
		if r.net.Contains(ip) {
			return r.right
		}
	}
	return None
}

// Handler checks source addresses before the handler of a surface that has its own
// listener.
type Handler struct {
	List    List
	Surface string // its name in the matrix of package access
	// Granted, if not nil, returns what an address may do on the surface, if that is
	// not for List to decide.
	Granted func(ip netip.Addr, surface string) (right Right, ok bool)
	// Enter, if not nil, takes a slot for a request of an admitted program. If there is
	// none, it answers the request, and ok is false. leave gives the slot back.
	Enter func(w http.ResponseWriter, r *http.Request, who matrix.Identity) (leave func(), ok bool)
	// Refused is called with each refused request and the reason. It must not block.
	Refused func(r *http.Request, why string)

	hosts *webcheck.Hosts // nil: any
	next  http.Handler

	refused atomic.Uint64
}

// Serve sets what answers the requests of admitted programs, and the names by which the
// listener may be asked; nil: any. It must be called before the first request.
func (g *Handler) Serve(surface *rest.Table, hosts *webcheck.Hosts) {
	g.next, g.hosts = surface.At(rest.Place{Gate: g.ask}), hosts
}

// Count returns how many requests were refused.
func (g *Handler) Count() uint64 { return g.refused.Load() }

// ServeHTTP implements http.Handler. A refused request gets 403 before its body is
// read, and the connection is closed.
func (g *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := matrix.Identity{Role: matrix.Foreign}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		if ip, err := netip.ParseAddr(host); err == nil {
			right := g.Of(ip)
			who.Name, who.Write, who.Programs = ip.Unmap().String(), right >= Write, right == Programs
			if right != None {
				g.enter(w, r, who)
				return
			}
		}
	}
	g.refuse(w, r, notListed)
}

// Of returns what an address may do on the surface now.
func (g *Handler) Of(ip netip.Addr) Right {
	if g.Granted != nil {
		if right, ok := g.Granted(ip, g.Surface); ok {
			return right
		}
	}
	return g.List.Of(ip)
}

// enter answers a program's request if it gets a slot. Requests that will be refused
// take slots too, because they cost as much.
func (g *Handler) enter(w http.ResponseWriter, r *http.Request, who matrix.Identity) {
	if g.Enter != nil {
		leave, ok := g.Enter(w, r, who)
		if !ok {
			return
		}
		defer leave()
	}
	switch refusal := webcheck.Request(r, g.hosts); {
	case refusal != nil:
		g.answer(w, r, refusal.Status, refusal.Code, refusal.Message+": "+refusal.Remedy)
	case !who.Write && !rest.IsRead(r):
		g.refuse(w, r, "this address may only read")
	default:
		g.next.ServeHTTP(w, r.WithContext(matrix.With(r.Context(), who)))
	}
}

// ask is the gate of the surface's table. It asks the matrix whether an admitted program
// may make its request.
func (g *Handler) ask(w http.ResponseWriter, r *http.Request, m rest.Match, serve rest.Endpoint) {
	who, _ := matrix.From(r.Context())
	_, refusal := matrix.Decide(who, r.Method+" "+r.URL.Path, m.Row)
	switch {
	case refusal != nil:
		g.refuse(w, r, refusal.Missing)
	case m.Row != nil && m.Row.Writes() && webcheck.Browser(r):
		refusal := webcheck.ReadOnly()
		g.answer(w, r, refusal.Status, refusal.Code, refusal.Message+": "+refusal.Remedy)
	default:
		_ = serve(w, r) // the surface answers its own errors
	}
}

// notListed is why an address may do nothing.
const notListed = "this address is not in the list of those that may"

func (g *Handler) refuse(w http.ResponseWriter, r *http.Request, why string) {
	g.answer(w, r, http.StatusForbidden, log.CodeNotAuthorized, why)
}

// answer answers a refused request, and closes the connection.
func (g *Handler) answer(w http.ResponseWriter, r *http.Request, status int, code, why string) {
	g.refused.Add(1)
	if g.Refused != nil {
		g.Refused(r, why)
	}
	w.Header().Set("Connection", "close")
	rest.WriteJSON(w, r, status, &rest.Error{Code: code, Message: why})
}
