package gateway

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"rutter/api/internal/rest"
)

// Limits of reports that go to the old CNAPI too.
const (
	// maxReports bounds the reports that are on their way to the old CNAPI at once.
	maxReports = 128
	// maxLate bounds the sysinfos that the old CNAPI did not take yet; each has at most
	// MaxBody bytes.
	maxLate   = 256
	lateEvery = 5 * time.Second
)

// recorder keeps an answer.
type recorder struct {
	header http.Header
	code   int // 0: nothing was answered yet
	body   bytes.Buffer
}

func newRecorder() *recorder { return &recorder{header: make(http.Header)} }

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// replay answers with what was recorded.
func (w *recorder) replay(to http.ResponseWriter) {
	for name, values := range w.header {
		to.Header()[name] = values
	}
	to.WriteHeader(max(w.code, http.StatusOK))
	_, _ = to.Write(w.body.Bytes()) // nothing can be done for a client that has gone
}

// report is one that goes to the old CNAPI.
type report struct {
	name, method, path string
	// key names the node and the sort, in one form: a query and letters in upper case, as
	// which one node could be sent many times, do not count.
	key    string
	body   []byte
	header http.Header
}

// reports are on their way to the old CNAPI.
type reports struct {
	g     *Gateway
	under sync.WaitGroup

	mu   sync.Mutex // protects what follows
	busy map[string]bool
	// late are sysinfos that were not taken, by key: the newest of each node.
	late map[string]report
}

// send sends a report, and does not wait for it. One of a node that has the same sort
// under way, and one too many, is dropped and counted: the next comes by itself. A
// sysinfo does not, so it is kept and sent again.
func (s *reports) send(one report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.name == "sysinfo" {
		if _, waits := s.late[one.key]; waits || len(s.late) < maxLate {
			s.late[one.key] = one
		}
	}
	if s.busy[one.key] || len(s.busy) >= maxReports {
		s.g.cfg.Metrics.tee(s.g.cfg.Surface, one.name, errStalled)
		return
	}
	s.busy[one.key] = true
	s.under.Go(func() { s.deliver(one) })
}

func (s *reports) deliver(one report) {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	_, _, err := s.g.behind.ask(ctx, one.method, one.path, one.body, one.header)
	s.g.cfg.Metrics.tee(s.g.cfg.Surface, one.name, err)
	if err != nil {
		s.g.logger.Debug("a report was not taken by "+s.g.name(), "path", one.path, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, one.key)
	if waits, ok := s.late[one.key]; (err == nil || final(err)) && ok && bytes.Equal(waits.body, one.body) {
		delete(s.late, one.key)
	}
}

// final reports whether an old service will never take the same request.
func final(err error) bool {
	var said *errStatus
	return asStatus(err, &said) && said.status >= 400 && said.status < 500 && said.status != http.StatusConflict && said.status != http.StatusTooManyRequests
}

// run sends late sysinfos again until ctx ends, and returns when nothing is under way.
func (s *reports) run(ctx context.Context) {
	tick := time.NewTicker(lateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.under.Wait()
			return
		case <-tick.C:
		}
		for _, one := range s.waiting() {
			s.send(one)
		}
	}
}

func (s *reports) waiting() (all []report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, one := range s.late {
		if !s.busy[key] {
			all = append(all, one)
		}
	}
	return all
}

// reported takes a report of a compute node into the log, and sends it to the old CNAPI
// too if the node has no agent of Rutter's. The log's answer is the answer.
func (g *Gateway) reported(name string) func(*asked) error {
	return func(a *asked) error {
		if err := g.vet(a); err != nil {
			return err
		}
		answer := newRecorder()
		outer := a.w
		a.w = answer
		err := g.own(a)
		a.w = outer
		if err != nil {
			return err
		}
		if _, agent := g.node(a.r); answer.code < 300 && !agent {
			g.reports.send(report{name, a.r.Method, pathOf(a.r), strings.ToLower(a.r.URL.Path), a.body, a.r.Header.Clone()})
		}
		answer.replay(outer)
		return nil
	}
}

// pathOf is the path of a request to the old service, with its query.
func pathOf(r *http.Request) string {
	return (&url.URL{Path: r.URL.Path, RawQuery: r.URL.RawQuery}).String()
}

// teed takes an operator's write of a compute node into the log, and then to the old
// CNAPI if the node has no agent of Rutter's. An error of either is the answer: the same
// write again is good for both.
func (g *Gateway) teed(name string) func(*asked) error {
	return func(a *asked) error {
		if err := g.vet(a); err != nil {
			return err
		}
		known, agent := g.node(a.r)
		if agent {
			return g.own(a)
		}
		if !known && name != "delete" {
			return g.handOn(a, nil)
		}
		answer := newRecorder()
		if known {
			outer := a.w
			a.w = answer
			err := g.own(a)
			a.w = outer
			if err != nil {
				return err
			}
			if answer.code > 299 {
				answer.replay(outer)
				return nil
			}
		}
		leave, err := g.behind.slots.enter(a.r, g.name())
		if err != nil {
			return err
		}
		_, _, err = g.behind.ask(a.r.Context(), a.r.Method, pathOf(a.r), a.body, a.r.Header)
		leave()
		g.cfg.Metrics.tee(g.cfg.Surface, name, err)
		if err != nil && (!missing(err) || !known) {
			var said *errStatus
			if asStatus(err, &said) && said.status < 500 {
				return rest.Fail(said.status, codeBehind, "", "the log has it; %s (%s) refused it: %s", g.name(), g.setting(), cut([]byte(said.body)))
			}
			return rest.Fail(http.StatusServiceUnavailable, rest.CodeUnavailable, "send it again: the log takes the same again", "the log has it; %s (%s) did not take it: %v", g.name(), g.setting(), err)
		}
		if answer.code == 0 {
			answer.code = http.StatusNoContent
		}
		answer.replay(a.w)
		return nil
	}
}
