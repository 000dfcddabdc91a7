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
	"rutter/log"
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
	own    said                            // without its progress
	at     func() (log.Seq, time.Duration) // Seq and Lag of own now

	mu    sync.Mutex      // protects known
	known map[string]said // what each member said last
}

// said is what a server says of itself to the others. A server of an older program says no
// zone, and one of a program before that not how far it is.
type said struct {
	API  string `json:"api"` // URL
	Zone string `json:"zone,omitempty"`
	// Seq is the head of its log, and Lag how far it is behind the leader, in nanoseconds,
	// if it is a replica: raftstore.Status has both.
	Seq log.Seq       `json:"seq,omitempty"`
	Lag time.Duration `json:"lag_ns,omitempty"`
}

// newDirectory makes the directory of a server whose API listens at listener. asked is the
// setting, peer the address that other servers dial. at is called for each answer, from any
// goroutine.
func newDirectory(status func() backend.Status, peers liveness.Peers, at func() (log.Seq, time.Duration), secure bool, inZone, asked string, listener net.Addr, peer string) *directory {
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
	return &directory{status: status, peers: peers, own: said{API: u.String(), Zone: inZone}, at: at, known: make(map[string]said)}
}

// answer answers askAPI.
func (d *directory) answer([]byte) ([]byte, error) {
	return json.Marshal(d.now())
}

// now is what this server says of itself.
func (d *directory) now() said {
	own := d.own
	own.Seq, own.Lag = d.at()
	return own
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
			of := d.now()
			if m.ID != d.peers.Self() {
				var err error
				if of, err = d.ask(ctx, m); err != nil {
					of, places[i].Problem = d.last(m.ID), support.Printable(err.Error())
				}
			}
			places[i].API, places[i].Zone, places[i].Seq, places[i].Lag = of.API, of.Zone, of.Seq, of.Lag
		})
	}
	asking.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	known := make(map[string]said)
	for _, p := range places { // of members that went, nothing stays
		if p.API != "" {
			known[p.ID] = said{API: p.API, Zone: p.Zone} // how far it was is soon wrong
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

// errPlace: a server answers with what is no URL, names no zone, or is ahead of its leader.
var errPlace = errors.New("its answer is no URL of an API, its zone has no name of a zone, or its lag is negative")

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
	if of.Lag < 0 || of.Zone != "" && zonename.Check(of.Zone) != nil {
		return said{}, errPlace
	}
	return of, nil
}
