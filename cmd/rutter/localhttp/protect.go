package localhttp

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"

	"rutter/api/auth/webcheck"
)

// Protect makes a server refuse what a web page asks through a browser of this machine,
// and paths with more than one reading (package webcheck). The server is called by the
// address of the connection, by localhost on a loopback address, and by the name of this
// machine. Protect also makes PeerOf work for its requests. It must be called before the
// server serves.
func Protect(server *http.Server) {
	var names webcheck.Names
	if own, err := os.Hostname(); err == nil {
		names.Configured = []string{strings.ToLower(own)}
	}
	server.Handler = webcheck.Handler(server.Handler, webcheck.NewHosts(nil, names))
	server.ConnContext = withPeer
	server.DisableGeneralOptionsHandler = true // the library would answer "OPTIONS *" to every page
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
