package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"sync"
	"time"

	"rutter/api"
	"rutter/api/backend"
	"rutter/api/liveness"
	"rutter/api/support"
)

// askAPI begins a request of another server for the URL of its API. It is none of the
// numbers of packages liveness and vmm.
const askAPI byte = 67

// Times of a directory.
const (
	// directoryEvery is how often the others are asked, so that the URL of a server that
	// dies later is known.
	directoryEvery = 10 * time.Second
	// directoryWithin bounds one answer: who asks for the directory waits for it.
	directoryWithin = time.Second
)

// maxURL bounds the URL that another server says, in bytes.
const maxURL = 300

// directory knows where the APIs of the cluster's servers are: each server says it to the
// others. Members of raft have the addresses of their peer ports only.
type directory struct {
	status func() backend.Status
	peers  liveness.Peers
	own    string // URL of this server's API

	mu    sync.Mutex        // protects known
	known map[string]string // what each member said last
}

// newDirectory makes the directory of a server whose API listens at listener. asked is the
// setting, peer the address that other servers dial.
func newDirectory(status func() backend.Status, peers liveness.Peers, secure bool, asked string, listener net.Addr, peer string) *directory {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	host, _, _ := net.SplitHostPort(asked)
	_, port, _ := net.SplitHostPort(listener.String())
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host, _, _ = net.SplitHostPort(peer) // it listens at every address, so at this one too
	}
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}
	return &directory{status: status, peers: peers, own: u.String(), known: make(map[string]string)}
}

// answer answers askAPI.
func (d *directory) answer([]byte) ([]byte, error) {
	return json.Marshal(map[string]string{"api": d.own})
}

// run asks until ctx ends.
func (d *directory) run(ctx context.Context) error {
	tick := time.NewTicker(directoryEvery)
	defer tick.Stop()
	for {
		d.places(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// places asks each other server at once, and returns all of the cluster. Of a server that
// does not answer, what it said last stays.
func (d *directory) places(ctx context.Context) []api.Place {
	members := d.status().Members
	places := make([]api.Place, len(members))
	var asking sync.WaitGroup
	for i, m := range members {
		asking.Go(func() {
			places[i] = api.Place{ID: m.ID, Peer: m.Address, Voter: m.Voter, Leader: m.Leader, API: d.own}
			if m.ID == d.peers.Self() {
				return
			}
			var err error
			if places[i].API, err = d.ask(ctx, m); err != nil {
				places[i].API, places[i].Problem = d.last(m.ID), support.Printable(err.Error())
			}
		})
	}
	asking.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	known := make(map[string]string)
	for _, p := range places { // of members that went, nothing stays
		if p.API != "" {
			known[p.ID] = p.API
		}
	}
	d.known = known
	return places
}

func (d *directory) last(id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[id]
}

// errPlace: a server answers with what is no URL.
var errPlace = errors.New("its answer is no URL of an API")

func (d *directory) ask(ctx context.Context, m backend.Member) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, directoryWithin)
	defer cancel()
	b, err := d.peers.Ask(ctx, m.Address, []byte{askAPI})
	if err != nil {
		return "", err
	}
	var said struct {
		API string `json:"api"`
	}
	if err := json.Unmarshal(b, &said); err != nil || len(said.API) > maxURL {
		return "", errPlace
	}
	u, err := url.Parse(said.API)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" || u.User != nil || u.RawQuery != "" {
		return "", errPlace
	}
	return said.API, nil
}
