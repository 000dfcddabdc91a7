package webcheck

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Names are what a server is called besides its addresses.
type Names struct {
	// Configured are host names and addresses, as ParseHosts returns them.
	Configured []string
	// Certificate returns the certificate that the listener shows now. nil: there is
	// none.
	Certificate func() *x509.Certificate
	// Setting is the flag that names them, for refusals. "": there is none.
	Setting string
}

// MaxHosts bounds the configured names of a server.
const MaxHosts = 64

// ParseHosts checks names for Names.Configured: host names or IP addresses, without a
// port. It returns them as they are compared.
func ParseHosts(texts []string) ([]string, error) {
	if len(texts) > MaxHosts {
		return nil, fmt.Errorf("there are %d names: at most %d are compared", len(texts), MaxHosts)
	}
	names := make([]string, len(texts))
	for i, text := range texts {
		name := strings.ToLower(strings.TrimSuffix(strings.Trim(text, "[]"), "."))
		_, err := netip.ParseAddr(name)
		if len(name) > 253 || name == "" || err != nil && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			return nil, fmt.Errorf("%q: want the name or the address of a host, without a port, as in rutter.example.com", text)
		}
		names[i] = name
	}
	return names, nil
}

// Hosts checks by which name a listener's server is asked.
type Hosts struct {
	listener    netip.Addr // the zero address if it is every address
	names       map[string]bool
	addresses   map[netip.Addr]bool
	certificate func() *x509.Certificate
	setting     string
}

// NewHosts returns the check for a listener at an address.
func NewHosts(listener net.Addr, names Names) *Hosts {
	h := &Hosts{listener: addressOf(listener), names: make(map[string]bool), addresses: make(map[netip.Addr]bool), certificate: names.Certificate, setting: names.Setting}
	if h.listener.IsUnspecified() {
		h.listener = netip.Addr{}
	}
	for _, name := range names.Configured {
		if ip, err := netip.ParseAddr(name); err == nil {
			h.addresses[ip.Unmap().WithZone("")] = true
		} else {
			h.names[name] = true
		}
	}
	return h
}

// Check refuses a request whose header Host is not what this server is called: the
// address of the listener, the address at which the connection arrived, localhost on a
// loopback address, a name or address of the certificate, or a configured one. Ports are
// not compared, nor are zones of link-local addresses, which mean something only on the
// machine that asks. A request over a Unix socket passes, and one without a Host, because
// every browser sends one.
func (h *Hosts) Check(r *http.Request) *Refusal {
	host := hostOf(r.Host)
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if _, tcp := local.(*net.TCPAddr); local != nil && !tcp {
		return nil // no name leads to a socket of this machine
	}
	at := addressOf(local)
	ip, err := netip.ParseAddr(host)
	ip = ip.Unmap().WithZone("")
	switch {
	case r.Host == "":
		return nil
	case err == nil && (ip == at || ip == h.listener || ip.IsLoopback() && at.IsLoopback() || h.addresses[ip]):
		return nil
	case err != nil && (strings.EqualFold(host, "localhost") && at.IsLoopback() || h.names[host] || h.names[strings.ToLower(host)]):
		return nil
	case h.certificate != nil:
		if leaf := h.certificate(); leaf != nil && leaf.VerifyHostname(host) == nil {
			return nil
		}
	}
	remedy := "ask by an address of this server"
	if h.setting != "" {
		remedy += fmt.Sprintf(", or start it with --%s %s (%s in the file of settings)", h.setting, host, h.setting)
	}
	return refuse(http.StatusMisdirectedRequest, CodeHost, remedy, "this server is not called %q", host)
}

// hostOf returns the host of HOST, HOST:PORT, [IPv6] or [IPv6]:PORT, without a dot at
// its end.
func hostOf(text string) string {
	if strings.HasPrefix(text, "[") {
		host, _, _ := strings.Cut(text[1:], "]")
		return host
	}
	host, _, _ := strings.Cut(text, ":")
	return strings.TrimSuffix(host, ".")
}

// addressOf returns the address of a TCP listener or connection; else the zero address.
func addressOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// Handler refuses requests before next, for a listener of this machine's own. It answers
// refusals as JSON. See Request.
func Handler(next http.Handler, hosts *Hosts) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refusal := Request(r, hosts)
		if refusal == nil {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(refusal.Status)
		_ = json.NewEncoder(w).Encode(map[string]string{"code": refusal.Code, "message": refusal.Message, "remedy": refusal.Remedy}) // the client is gone
	})
}
