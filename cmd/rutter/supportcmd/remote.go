package supportcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"rutter/api/client"
	"rutter/api/support"
	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/output"
	"rutter/log"
)

// Bounds of what is asked, and why.
const (
	// partTime bounds one part: a server takes 15 s at most for one of a node.
	partTime = 20 * time.Second
	// goneTime bounds the first answer of a server, so that one that hangs is known early.
	goneTime = 10 * time.Second
	// maxNodes bounds the nodes of --cn all.
	maxNodes = 50
	// nodesAtOnce is less than the parts of nodes that one server fetches at once, so that
	// another operator's bundle has room.
	nodesAtOnce = 3
	// maxServers bounds the servers: more is no cluster of ours.
	maxServers = 64
	// busyTries and busyPause are for a server that fetches parts for others.
	busyTries = 4
	busyPause = 500 * time.Millisecond
	// maxAnswer bounds one answer of a server, in bytes: a part, or the sessions of some
	// 5,000 nodes.
	maxAnswer = 16 << 20
)

// serverPaths are what a server is asked, in this order.
var serverPaths = []struct{ part, path string }{
	{support.Status, "/status"},
	{support.Ready, "/readyz?verbose=true"},
	{"servers.json", "/cluster/servers"},
	{"cluster.json", "/cluster"},
	{support.Metrics, "/metrics"},
	{"sessions.json", "/cns"},
	{support.Runtime, "/support/" + support.Runtime},
	{support.Settings, "/support/" + support.Settings},
	{support.Logs, "/support/" + support.Logs},
	{support.Goroutines, "/support/" + support.Goroutines},
	{support.Heap, "/support/" + support.Heap},
}

// nodeParts are what a node is asked, in this order.
var nodeParts = []string{support.Status, support.Runtime, support.Settings, support.Logs, support.Metrics, support.Goroutines, support.Heap}

// remote gathers from servers and nodes by the API.
type remote struct {
	api   *client.Client
	nodes []string // as the user named them

	mu   sync.Mutex // protects good
	good []string   // URLs of servers that answered
}

// place is a server that is asked.
type place struct{ id, url, why string }

func (r *remote) gather(ctx context.Context, f *file) error {
	places := r.places(ctx)
	err := each(len(places), max(1, len(places)), func(i int) error { return r.server(ctx, f, places[i]) })
	if err != nil {
		return err
	}
	if len(r.good) == 0 {
		return fmt.Errorf("%w: %s", client.ErrUnavailable, f.firstMissing())
	}
	return r.gatherNodes(ctx, f)
}

// places are the servers of the cluster: those that were named, and the others, which the
// first one that answers knows.
func (r *remote) places(ctx context.Context) (all []place) {
	type answer struct {
		url    string
		id     string
		places []client.Place
		err    error
	}
	urls := r.api.Servers()
	answers := make([]answer, len(urls))
	_ = each(len(urls), len(urls), func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, goneTime)
		defer cancel()
		a := answer{url: urls[i]}
		var status client.Status
		if status, a.err = r.api.StatusOf(ctx, a.url); a.err == nil {
			a.id = status.ID
			if a.places, a.err = r.api.Places(ctx, a.url); a.err != nil { // of an older program
				a.err = nil
				for _, m := range status.Members {
					a.places = append(a.places, client.Place{ID: m.ID, Peer: m.Address})
				}
			}
		}
		answers[i] = a
		return nil
	})
	for _, a := range answers {
		p := place{id: a.id, url: a.url}
		if a.err != nil {
			p.why = a.err.Error()
		}
		if a.id == "" || !slices.ContainsFunc(all, func(o place) bool { return o.id == a.id }) {
			all = append(all, p)
		}
	}
	for _, a := range answers {
		for _, m := range a.places {
			same := func(o place) bool { return o.id == m.ID || o.url == m.API && m.API != "" }
			if i := slices.IndexFunc(all, same); i >= 0 {
				all[i].id = m.ID
			} else if p := (place{id: m.ID, url: m.API}); len(all) < maxServers {
				if p.url == "" {
					p.why = "no server knows where its API is (peer port " + m.Peer + "): name it with --server"
				}
				all = append(all, p)
			}
		}
	}
	return all
}

// server adds the parts of one server.
func (r *remote) server(ctx context.Context, f *file, p place) error {
	name := p.id
	if name == "" {
		name = p.url
	}
	folder := "servers/" + safeName(name)
	if p.why != "" {
		f.miss(folder, p.why)
		return nil
	}
	var parts []string
	paths := make(map[string]string)
	for _, one := range serverPaths {
		parts = append(parts, one.part)
		paths[one.part] = one.path
	}
	first := true
	found, err := collect(ctx, f, folder, p.url, parts, func(ctx context.Context, part string) ([]byte, error) {
		if first {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, goneTime)
			defer cancel()
			first = false
		}
		text, err := r.api.Part(ctx, p.url, paths[part], maxAnswer)
		return text, goneOf(err)
	})
	if found > 0 {
		r.mu.Lock()
		r.good = append(r.good, p.url)
		r.mu.Unlock()
	}
	return err
}

// gatherNodes adds the parts of the nodes.
func (r *remote) gatherNodes(ctx context.Context, f *file) error {
	if len(r.nodes) == 0 {
		return nil
	}
	ids, err := r.nodeIDs(ctx, f)
	if err != nil {
		return err
	}
	slices.Sort(r.good)
	return each(len(ids), nodesAtOnce, func(i int) error {
		folder, from := "nodes/"+ids[i], "CN "+ids[i]
		_, err := collect(ctx, f, folder, from, nodeParts, func(ctx context.Context, part string) ([]byte, error) {
			return r.ofNode(ctx, "/cns/"+url.PathEscape(ids[i])+"/support/"+part)
		})
		return err
	})
}

// nodeIDs are the UUIDs of the nodes, each once.
func (r *remote) nodeIDs(ctx context.Context, f *file) (ids []string, err error) {
	if slices.Contains(r.nodes, "all") {
		sessions, err := r.api.EverySession(ctx)
		if err != nil {
			f.miss("nodes", "which there are is unknown: "+err.Error())
			return nil, nil
		}
		for _, s := range sessions {
			if s.Gone {
				f.miss("nodes/"+s.CN.String(), "its session has ended")
				continue
			}
			ids = append(ids, s.CN.String())
		}
		slices.Sort(ids)
		if more := len(ids) - maxNodes; more > 0 {
			f.miss("nodes", fmt.Sprintf("%d more nodes: at most %d are asked; name them with --cn", more, maxNodes))
			ids = ids[:maxNodes]
		}
		return ids, nil
	}
	for _, text := range r.nodes {
		found, err := named.Object(ctx, r.api, log.KindServer, text)
		if err != nil {
			if refused(err) {
				return nil, err
			}
			f.miss("nodes/"+safeName(text), err.Error())
			continue
		}
		if id, err := log.ParseUUID(found.ID); err == nil && !slices.Contains(ids, id.String()) {
			ids = append(ids, id.String())
		}
	}
	return ids, nil
}

// ofNode asks the servers that answered for a part of a node, until one has it.
func (r *remote) ofNode(ctx context.Context, path string) (text []byte, err error) {
	for try := range busyTries {
		server := r.good[try%len(r.good)]
		if text, err = r.api.Part(ctx, server, path, maxAnswer); err == nil {
			return text, nil
		}
		var said *client.Error
		if !errors.As(err, &said) && ctx.Err() == nil && refused(err) {
			return nil, err
		}
		busy := errors.As(err, &said) && said.Status == http.StatusServiceUnavailable
		if !busy && !errors.Is(goneOf(err), errGone) {
			return nil, nodeError(said, err)
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(busyPause):
		}
	}
	return nil, err
}

// nodeError is errGone if the node itself does not answer.
func nodeError(said *client.Error, err error) error {
	if said != nil && said.Status == http.StatusGatewayTimeout {
		return fmt.Errorf("%w: %s", errGone, output.Visible(said.Message))
	}
	return err
}

// goneOf makes errGone of an error of a connection; answers of the API stay as they are.
func goneOf(err error) error {
	var said *client.Error
	var refusal *log.Refusal
	var syntax *json.SyntaxError
	if err == nil || errors.As(err, &said) || errors.As(err, &refusal) || errors.As(err, &syntax) {
		return err
	}
	return fmt.Errorf("%w: %w", errGone, err)
}

// refused reports whether the servers refuse this certificate: then there is no bundle.
func refused(err error) bool {
	var refusal *log.Refusal
	return errors.As(err, &refusal) && refusal.Code == log.CodeNotAuthorized
}
