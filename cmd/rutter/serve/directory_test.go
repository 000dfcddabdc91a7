package serve

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"rutter/api"
	"rutter/api/backend"
	"rutter/api/liveness"
	"rutter/log"
)

// saying are the others of a cluster, by the address of the peer port: what each answers, or
// an error.
type saying struct {
	liveness.Peers // of which a directory asks nothing else
	answers        map[string]string
}

func (saying) Self() string { return "s1" }

func (p saying) Ask(_ context.Context, address string, _ []byte) ([]byte, error) {
	if answer, ok := p.answers[address]; ok {
		return []byte(answer), nil
	}
	return nil, errors.New("connection refused")
}

// Of each server there are its zone, whether it has a vote, and how far it is: also of those
// of older programs, which do not say it, and of one that does not answer now.
func TestDirectorySaysZonesAndLag(t *testing.T) {
	t.Parallel()
	peers := saying{answers: map[string]string{
		"p2": `{"api":"http://10.0.0.2:7420","zone":"west","seq":40,"lag_ns":2000000}`,
		"p3": `{"api":"http://10.0.0.3:7420"}`,
		"p4": `{"api":"http://10.0.0.4:7420","seq":7,"lag_ns":-1}`,
	}}
	members := []backend.Member{{ID: "s1", Voter: true, Leader: true}, {ID: "s2", Address: "p2"}, {ID: "s3", Address: "p3", Voter: true}, {ID: "s4", Address: "p4", Voter: true}}
	d := newDirectory(func() backend.Status { return backend.Status{Members: members} }, peers,
		func() (log.Seq, time.Duration) { return 42, 0 }, false, "east", "10.0.0.1:7420", &net.TCPAddr{Port: 7420}, "10.0.0.1:7421")
	want := []api.Place{
		{ID: "s1", Voter: true, Leader: true, Zone: "east", Seq: 42, API: "http://10.0.0.1:7420"},
		{ID: "s2", Peer: "p2", Zone: "west", Seq: 40, Lag: 2 * time.Millisecond, API: "http://10.0.0.2:7420"},
		{ID: "s3", Peer: "p3", Voter: true, API: "http://10.0.0.3:7420"},
		{ID: "s4", Peer: "p4", Voter: true, Problem: errPlace.Error()},
	}
	if got := d.places(t.Context()); !slices.Equal(got, want) {
		t.Errorf("places\n got %+v\nwant %+v", got, want)
	}
	delete(peers.answers, "p2") // what it said of where it is stays, and not how far it was
	want[1] = api.Place{ID: "s2", Peer: "p2", Zone: "west", API: "http://10.0.0.2:7420", Problem: "connection refused"}
	if got := d.places(t.Context()); !slices.Equal(got, want) {
		t.Errorf("with one that does not answer\n got %+v\nwant %+v", got, want)
	}
}
