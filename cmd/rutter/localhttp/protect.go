package localhttp

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// Protect makes a server refuse what a web page asks through a browser of this machine,
// and makes PeerOf work for its requests. It must be called before the server serves.
//
// A browser says where a page comes from (Origin, Sec-Fetch-Site). Requests of pages of
// another origin are refused with 403, whatever their method. A name that its owner
// points at this machine (DNS rebinding) gives a page the same origin, so the header
// Host must be an address, localhost or the name of this machine; a loopback address is
// the only one over loopback. Another name is refused with 421.
func Protect(server *http.Server) {
	server.Handler = protected(server.Handler)
	server.ConnContext = withPeer
}

func protected(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if local != nil && local.Network() == "unix" {
			next.ServeHTTP(w, r) // no browser reaches it
			return
		}
		if !hostAllowed(r.Host, local) {
			Refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf("the host %q is no name of this machine: ask for it by its address, as in http://127.0.0.1", r.Host))
			return
		}
		// The check lets GET pass. Here answers are secrets too, so it is asked as for a
		// request that changes something.
		asked := *r
		asked.Method = http.MethodPost
		if err := origins.Check(&asked); err != nil {
			Refuse(w, http.StatusForbidden, "a web page of another origin may not ask this: "+err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostAllowed decides about the header Host of a request that came to local.
func hostAllowed(host string, local net.Addr) bool {
	name := host
	if inner, _, err := net.SplitHostPort(host); err == nil {
		name = inner
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if name == "" || name == "localhost" { // HTTP/1.0 has no Host; browsers always send it
		return true
	}
	addr, err := netip.ParseAddr(name)
	if err != nil {
		own, _ := os.Hostname() // an error leaves it empty, which no name is
		return name == strings.ToLower(own)
	}
	tcp, ok := local.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback() || addr.Unmap().IsLoopback()
}

// Refuse answers with a status and a JSON object: error_code, and a message that says
// what to do.
func Refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error_code": http.StatusText(status), "message": message}) // the client has gone
}

// ReadOnly serves the GET and HEAD requests of a handler. It refuses others with 403 and
// remedy, which says where they are accepted.
func ReadOnly(next http.Handler, remedy string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			Refuse(w, http.StatusForbidden, "nothing is changed through this port: "+remedy)
			return
		}
		next.ServeHTTP(w, r)
	})
}
