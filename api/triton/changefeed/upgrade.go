package changefeed

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"rutter/api/auth/webcheck"
	"rutter/api/internal/rest"
	"rutter/log"
)

// Table is everything that the surface serves.
func (s *Service) Table() *rest.Table { return s.table }

// Handler returns the handler of /changefeeds and of what is below it, without a gate.
func (s *Service) Handler() http.Handler { return s.table.Handler() }

func (s *Service) surface() *rest.Table {
	return &rest.Table{Surface: "changefeeds", Clients: webcheck.Triton, Routes: []rest.Route{
		{Method: http.MethodGet, Pattern: "/changefeeds", Serve: rest.Serve(http.HandlerFunc(s.changefeeds))},
		{Method: http.MethodGet, Pattern: "/changefeeds/stats", Serve: rest.Serve(http.HandlerFunc(s.stats))},
	}}
}

// changefeeds answers the probe, or upgrades.
func (s *Service) changefeeds(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		s.upgrade(w, r)
		return
	}
	if err := s.serves(); err != nil {
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, failure{"ServiceUnavailable", err.Error()})
		return
	}
	answer(w, http.StatusOK, resources)
}

// failure is an error as restify prints it.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// answer answers with v as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"code":"InternalError","message":"the answer cannot be printed"}`)
	}
	w.WriteHeader(status)
	_, _ = w.Write(b) // nothing can be done for a client that has gone
}

// upgrade makes a listener of the connection. A listener whose probe was answered waits
// without end for an upgrade that is refused (spec/changefeed.md section 1.5). So a
// connection that cannot be served is upgraded too, and closed with a reason.
func (s *Service) upgrade(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Sec-WebSocket-Protocol") != "" {
		answer(w, http.StatusBadRequest, failure{"BadRequest", "there is no subprotocol: leave Sec-WebSocket-Protocol out"})
		return
	}
	version, known := versionOf(r.Header.Get("Accept-Version"))
	unable := s.serves()
	conn, err := websocket.Accept(w, r, nil) // it answers requests that it refuses
	if err != nil {
		return
	}
	l := &listener{
		s: s, conn: conn, remote: r.RemoteAddr, since: time.Now(),
		woken: make(chan struct{}, 1), over: make(chan struct{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != running {
		_ = conn.CloseNow()
		return
	}
	switch {
	case unable != nil:
		l.end(unable.Error())
	case !known:
		l.end("Accept-Version is not one of ~1 and ~2")
	case s.listeners >= s.cfg.MaxListeners:
		l.end(errFull.Error())
	default:
		s.listeners++
	}
	refused := l.reason != ""
	// The request ends here, so that net/http frees what it keeps for it.
	s.handling.Go(func() {
		why := closedRejected
		if !refused {
			why = l.serve(version)
			s.leave()
		}
		if why == closedRejected {
			_ = conn.Close(websocket.StatusNormalClosure, l.reason)
		}
		_ = conn.CloseNow()
		s.closed(l, why)
	})
}

// leave frees the slot of a listener. A refused listener has none while the reason is
// sent: it may reconnect before its old connection is closed, which is up to it.
func (s *Service) leave() {
	s.mu.Lock()
	s.listeners--
	s.mu.Unlock()
}

// closed records a connection that has ended.
func (s *Service) closed(l *listener, why string) {
	s.metrics.closed.WithLabelValues(why).Inc()
	instance := ""
	if l.reg != nil {
		instance = l.reg.Instance
	}
	s.cfg.Logger.Info("changefeed listener ended", "instance", instance, "remote", l.remote, "why", why, "reason", l.reason)
}

// versionOf reads Accept-Version: a range of semantic versions, of which the
// major one matters. None is the first version, as restify has it.
func versionOf(accept string) (v Version, ok bool) {
	accept = strings.TrimLeft(strings.TrimSpace(accept), "~^>=v ")
	major, _, _ := strings.Cut(accept, ".")
	switch major {
	case "", "1":
		return V1, true
	case "2", "*":
		return V2, true
	}
	return 0, false
}

// registered is a listener in the stats, in the form of its registration.
type registered struct {
	Instance   string     `json:"instance"`
	Service    string     `json:"service"`
	ChangeKind *interest  `json:"changeKind,omitempty"`
	Resources  []interest `json:"resources,omitempty"`
	Remote     string     `json:"remote,omitempty"`
	Since      string     `json:"since,omitempty"`
}

// agentService is the service of Rutter's agents in the stats. They do what net-agent
// did for a compute node.
const agentService = "net-agent"

// agentInstance names the agent of a compute node as net-agent names itself.
func agentInstance(cn log.UUID) string { return cn.String() + "/" + agentService }

// stats answers which live listeners there are, each once.
func (s *Service) stats(w http.ResponseWriter, _ *http.Request) {
	all := []registered{}
	for _, l := range s.hub.registered() {
		one := registered{
			Instance: l.reg.Instance, Service: l.reg.Service, Resources: l.reg.wants,
			Remote: l.remote, Since: log.TimeOf(l.since).String(),
		}
		if l.reg.Version == V1 {
			one.ChangeKind, one.Resources = &l.reg.wants[0], nil
		}
		all = append(all, one)
	}
	for _, cn := range s.cfg.Agents() {
		all = append(all, registered{Instance: agentInstance(cn), Service: agentService, Resources: []interest{}})
	}
	slices.SortFunc(all, func(a, b registered) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Since, b.Since))
	})
	answer(w, http.StatusOK, struct {
		Listeners     int          `json:"listeners"`
		Registrations []registered `json:"registrations"`
	}{len(all), all})
}
