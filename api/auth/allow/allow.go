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
)

// Right is what a source address may do.
type Right uint8

// The rights, each with those before it.
const (
	None  Right = iota
	Read        // GET and HEAD
	Write       // everything
)

// MaxRows bounds a list: it is looked through for each request.
const MaxRows = 256

// List says which networks may do what. The zero value lets nobody in.
type List struct{ rows []row }

type row struct {
	net   netip.Prefix
	right Right
}

// Parse reads rows of the form CIDR=read or CIDR=write; an address stands for
// itself. A network that is named twice is refused.
func Parse(texts []string) (List, error) {
	var l List
	if len(texts) > MaxRows {
		return l, fmt.Errorf("there are %d rows: at most %d are looked through", len(texts), MaxRows)
	}
	for _, text := range texts {
		r, err := parse(text)
		if err != nil {
			return List{}, fmt.Errorf("%q: %w: want CIDR=read or CIDR=write, as in 10.99.0.0/16=write", text, err)
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
	default:
		return r, fmt.Errorf("%q is neither read nor write", word)
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

// Loopback is the list that lets this machine in, and nobody else.
func Loopback() List {
	l, err := Parse([]string{"127.0.0.0/8=write", "::1/128=write"})
	if err != nil {
		panic("allow: " + err.Error())
	}
	return l
}

// Len returns the number of rows.
func (l List) Len() int { return len(l.rows) }

// Of returns what an address may do: what the narrowest network says that it is in.
func (l List) Of(ip netip.Addr) Right {
	ip = ip.Unmap().WithZone("")
	for _, r := range l.rows {
		if r.net.Contains(ip) {
			return r.right
		}
	}
	return None
}

// Handler is the handler before a surface on a listener of its own.
type Handler struct {
	List    List
	Surface string // its name in the matrix of package access
	// Granted, if not nil, says what an address may do on the surface, where that
	// is not for List to say.
	Granted func(ip netip.Addr, surface string) (right Right, ok bool)
	// Enter, if not nil, takes a place for a request of a program that is let in; if
	// it has none it answers the request, and ok is false. leave gives it back.
	Enter func(w http.ResponseWriter, r *http.Request, who matrix.Identity) (leave func(), ok bool)
	Next  http.Handler
	// Refused is told of each request that was refused, and why; it must not be slow.
	Refused func(r *http.Request, why string)

	refused atomic.Uint64
}

// Count returns how many requests were refused.
func (g *Handler) Count() uint64 { return g.refused.Load() }

// ServeHTTP implements http.Handler. Who is refused gets 403 before anything of
// the body is read, and the connection is closed.
func (g *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := matrix.Identity{Role: matrix.Foreign}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		if ip, err := netip.ParseAddr(host); err == nil {
			right := g.Of(ip)
			who.Name, who.Write = ip.Unmap().String(), right == Write
			if right != None {
				g.enter(w, r, who)
				return
			}
		}
	}
	g.refuse(w, r, "this address is not in the list of those that may")
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

// enter has a program's request answered if it has a place, which those have too
// that will be refused: they cost as much.
func (g *Handler) enter(w http.ResponseWriter, r *http.Request, who matrix.Identity) {
	if g.Enter != nil {
		leave, ok := g.Enter(w, r, who)
		if !ok {
			return
		}
		defer leave()
	}
	g.ask(w, r, who)
}

// ask has the matrix decide what a program that was let in asks for.
func (g *Handler) ask(w http.ResponseWriter, r *http.Request, who matrix.Identity) {
	if !who.Write && r.Method != http.MethodGet && r.Method != http.MethodHead {
		g.refuse(w, r, "this address may only read")
		return
	}
	_, refusal := matrix.Decide(who, r.Method+" "+r.URL.Path, matrix.FindOn(g.Surface, r, ""))
	if refusal != nil {
		g.refuse(w, r, refusal.Missing)
		return
	}
	g.Next.ServeHTTP(w, r.WithContext(matrix.With(r.Context(), who)))
}

func (g *Handler) refuse(w http.ResponseWriter, r *http.Request, why string) {
	g.refused.Add(1)
	if g.Refused != nil {
		g.Refused(r, why)
	}
	w.Header().Set("Connection", "close")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	if r.Method != http.MethodHead {
		_, _ = fmt.Fprintf(w, "{\"code\":\"NotAuthorized\",\"message\":%q}\n", why)
	}
}
