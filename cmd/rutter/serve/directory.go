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
	"rutter/log/zonename"
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
	own    said

	mu    sync.Mutex      // protects known
	known map[string]said // what each member said last
}

// said is what a server says of itself to the others. A server of an older program says no
// zone.
type said struct {
	API  string `json:"api"` // URL
	Zone string `json:"zone,omitempty"`
}

// newDirectory makes the directory of a server whose API listens at listener. asked is the
// setting, peer the address that other servers dial.
func newDirectory(status func() backend.Status, peers liveness.Peers, secure bool, inZone, asked string, listener net.Addr, peer string) *directory {
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
	return &directory{status: status, peers: peers, own: said{u.String(), inZone}, known: make(map[string]said)}
}

// answer answers askAPI.
func (d *directory) answer([]byte) ([]byte, error) {
	return json.Marshal(d.own)
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
			places[i] = api.Place{ID: m.ID, Peer: m.Address, Voter: m.Voter, Leader: m.Leader}
			of := d.own
			if m.ID != d.peers.Self() {
				var err error
				if of, err = d.ask(ctx, m); err != nil {
					of, places[i].Problem = d.last(m.ID), support.Printable(err.Error())
				}
			}
			places[i].API, places[i].Zone = of.API, of.Zone
		})
	}
	asking.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	known := make(map[string]said)
	for _, p := range places { // of members that went, nothing stays
		if p.API != "" {
			known[p.ID] = said{p.API, p.Zone}
		}
	}
	d.known = known
	return places
}

func (d *directory) last(id string) said {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[id]
}

// errPlace: a server answers with what is no URL, or names no zone.
var errPlace = errors.New("its answer is no URL of an API, or its zone has no name of a zone")

func (d *directory) ask(ctx context.Context, m backend.Member) (of said, err error) {
	ctx, cancel := context.WithTimeout(ctx, directoryWithin)
	defer cancel()
	b, err := d.peers.Ask(ctx, m.Address, []byte{askAPI})
	if err != nil {
		return of, err
	}
	if err := json.Unmarshal(b, &of); err != nil || len(of.API) > maxURL {
		return said{}, errPlace
	}
	u, err := url.Parse(of.API)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" || u.User != nil || u.RawQuery != "" {
		return said{}, errPlace
	}
	if of.Zone != "" && zonename.Check(of.Zone) != nil {
		return said{}, errPlace
	}
	return of, nil
}
