package varp

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"time"

	"rutter/log"
	"rutter/varp/internal/places"
)

// Sharing is how the places of clients outlive a server: they are asked of the other
// servers, and written to a file. Both are rare and in bulk, and no acknowledgement
// waits for either. A place that is lost, damaged or too old costs a sweep.
type Sharing struct {
	// File has the places while the server does not run. It is written every
	// PlacesEvery, and when Run ends, and is not synced. "": none.
	File string
	// Peers returns the addresses of the other servers, and Ask sends a question to one
	// of them, which answers with AnswerPlaces. nil: there are none.
	Peers func() []string
	Ask   func(ctx context.Context, address string, question []byte) ([]byte, error)
	// Ready reports whether lookups are answered; nil: always.
	Ready func() bool
}

// Times of sharing.
const (
	// PlacesEvery is how often the file is written, if anything changed. What a server
	// that crashes had not written comes from its peers, or is given again.
	PlacesEvery = 10 * time.Second
	// askPlaces is how often each other server is asked: less than the second that
	// illumos waits between an acknowledgement and its next request, which goes to
	// another server.
	askPlaces = 500 * time.Millisecond
	// askPlacesWithin bounds one question.
	askPlacesWithin = 3 * time.Second
	// noteApplied is how exactly a server knows when it had applied what.
	noteApplied = 50 * time.Millisecond
	// tellIdle is how often a client that is given nothing is told of.
	tellIdle = 10 * time.Second
	// keepAcks is how long ids are kept that this server did not deliver.
	keepAcks = 10 * time.Second
	// againEvery is how often a server is asked to give the same records again.
	againEvery = 30 * time.Second
)

// Bounds of sharing.
const (
	// maxKeptAcks bounds the ids of all clients that are kept for other servers: 1 MB.
	maxKeptAcks = 1 << 16
	// maxKeptAcksOf bounds those of one client: four batches of illumos.
	maxKeptAcksOf = maxPending
	// maxAgain bounds what other servers are asked to give again.
	maxAgain = 4096
)

// knownPlaces is what Shootdowns knows of nodes from elsewhere, and what others may ask
// it. Shootdowns.mu protects it.
type knownPlaces struct {
	epoch   uint64 // of this process: versions of another mean nothing
	version uint64 // rises with each change that others must learn
	applied places.Applied

	places map[netip.Addr]*knownPlace
	acks   map[netip.Addr]*keptAcks
	nAcks  int
	again  map[netip.Addr]wantedAgain
	asked  map[string]places.Question // by peer: the epoch and version that it told last
	dirty  bool                       // something changed since the file was written
}

type knownPlace struct {
	places.Place
	version uint64
}

type keptAcks struct {
	ids     []log.UUID
	version uint64
	at      time.Time
}

type wantedAgain struct {
	peer string
	places.Again
	at time.Time // when it was asked for; zero: not yet
}

func newKnownPlaces(time.Time) knownPlaces {
	return knownPlaces{
		epoch: rand.Uint64() | 1, places: make(map[netip.Addr]*knownPlace), acks: make(map[netip.Addr]*keptAcks),
		again: make(map[netip.Addr]wantedAgain), asked: make(map[string]places.Question),
	}
}

// forget drops everything: the log is another one.
func (k *knownPlaces) forget(now time.Time) { *k = newKnownPlaces(now) }

// take returns the place of a node that asks for the first time, nil if it is unknown or
// another node's. It stays until the node has a reading of its own.
func (k *knownPlaces) take(cn netip.Addr, nodes []log.UUID) *places.Place {
	p := k.places[cn]
	if p == nil || len(nodes) != 1 || nodes[0] != p.Node {
		return nil
	}
	return &p.Place
}

// keep keeps ids that a client acknowledged for the servers that delivered them.
func (k *knownPlaces) keep(cn netip.Addr, ids []log.UUID) {}

var (
	_ = cmp.Compare[int]
	_ = binary.BigEndian
	_ = errors.New
	_ = fmt.Sprint
	_ = fs.ErrNotExist
	_ = os.ReadFile
	_ = slices.Sort[[]int]
)

func (s *Shootdowns) delivered(r *logReader, newest log.Seq) {}
func (s *Shootdowns) touch(r *logReader)                     {}
