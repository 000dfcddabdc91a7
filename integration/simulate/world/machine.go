package world

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing/synctest"
	"time"

	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
)

// busy is whether a fault has stopped a machine.
type busy struct {
	mu sync.Mutex
	is bool
}

func (b *busy) claim() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.is
	b.is = true
	return !was
}

func (b *busy) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.is = false
}

// freeze runs fn at a moment in which no other goroutine of the bubble runs, so that no
// operation on disk is under way.
func (w *world) freeze(fn func() error) error {
	w.freezing <- struct{}{}
	defer func() { <-w.freezing }()
	synctest.Wait()
	return fn()
}

// aside takes the folder of a machine away from the process that has it open, which goes on
// in the old files, and leaves a copy in its place: what a process finds that starts after
// that one was killed now.
func (w *world) aside(dir string) error {
	w.mu.Lock()
	w.killed++
	old := fmt.Sprintf("%s.killed%d", dir, w.killed)
	w.mu.Unlock()
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	return os.CopyFS(dir, os.DirFS(old))
}

// crash kills the server's process: it does nothing more that another machine notices.
func (s *server) crash() error {
	s.host.Kill()
	return s.cut(false, 0, s.gone)
}

// gone: the server's process is no more. What still runs of it ends beside.
func (s *server) gone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return
	}
	s.cancel()
	ended := s.ended
	s.w.zombies.Go(func() { <-ended })
	s.run = nil
	s.w.seen.Add(s.name, seen.Process{State: "killed"})
}

// power cuts the power of a server at the n-th operation on its disk from now, and takes back
// some of what was not synced.
func (s *server) power(f history.Fault) error {
	if s.folder == nil {
		return s.crash()
	}
	if s.await(f.N) {
		s.w.count(coverage.RestartInWrite, 1)
	}
	s.host.Down()
	return s.cut(true, f.Seed, s.gone)
}

// crash kills the agent's process.
func (n *node) crash() error {
	n.host.Kill()
	return n.cut(false, 0, n.gone)
}

// gone: the agent's process is no more. What still runs of it ends beside.
func (n *node) gone() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent == nil {
		return
	}
	n.cancel()
	ended := n.ended
	n.w.zombies.Go(func() { <-ended })
	n.agent = nil
	n.w.seen.Add(n.name, seen.Process{State: "killed"})
}

// power cuts the power of a compute node at the n-th operation on its disk from now, if the disk
// is one that can fail. Its kernel starts anew as well, and is slow at first.
func (n *node) power(f history.Fault) error {
	if n.folder != nil {
		n.await(f.N)
	}
	n.host.Down()
	err := n.cut(n.folder != nil, f.Seed, n.gone)
	n.kernel.boot()
	return err
}

// replace does what docs/deploy.md says of a lost server: it is removed from the cluster, and
// one of another name joins with an empty folder.
func (s *server) replace() error {
	if !s.removed {
		if err := s.w.remove(s.member(), 30*time.Second); err != nil {
			return fmt.Errorf("remove %s: %w", s.member(), err)
		}
	}
	s.rename(true)
	s.w.seen.Add(s.name, seen.Process{State: "replaced"})
	if err := s.empty(); err != nil {
		return err
	}
	return s.w.begin(s)
}

// replace: a node without a cache begins with an empty one.
func (n *node) replace() error {
	if err := n.empty(); err != nil {
		return err
	}
	return n.w.begin(n)
}

// old gives the node the cache that it had at the beginning.
func (n *node) old() error { return n.fill(n.oldCache()) }

// oldCache is the folder with the cache that a node had at the beginning.
func (n *node) oldCache() string { return filepath.Join(n.w.folder, n.name+".old") }

// keepOld copies the caches of all nodes as they are now.
func (w *world) keepOld() error {
	return w.freeze(func() (err error) {
		for _, n := range w.nodes {
			err = errors.Join(err, os.CopyFS(n.oldCache(), os.DirFS(n.dir)))
		}
		return err
	})
}

// member is the name of the server in the cluster.
func (s *server) member() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// peers are the peer addresses of the other servers that began with a vote.
func (s *server) peers() (all []string) {
	for _, other := range s.w.servers {
		if other != s && !other.replica {
			all = append(all, net.JoinHostPort(other.host.Address(), strconv.Itoa(peerPort)))
		}
	}
	return all
}

// empty gives the machine's next server an empty folder: whatever the last one has open, the next
// one needs no copy of it.
func (s *server) empty() error {
	s.mu.Lock()
	s.hung = false
	s.mu.Unlock()
	return s.drive.empty()
}

// Zones of a history with replicas. Every second compute node is of that of the replicas, and
// follows them while they are ready.
const (
	votersZone   = "west"
	replicasZone = "east"
)

// Times of replicas and zones, small enough for a history of a minute.
const (
	maxLag     = 3 * time.Second // raftstore.Config.MaxLag of replicas
	zoneEvery  = 2 * time.Second
	zoneSettle = 3 * time.Second
	zoneSpread = 3 * time.Second
)

// addReplicas adds the history's servers without a vote, which join the others.
func addReplicas(w *world) {
	for i := range w.h.Replicas {
		id := fmt.Sprintf("n%d", i+1)
		w.servers = append(w.servers, &server{w: w, name: id, id: id, replica: true, joins: true, host: w.net.Host(id), drive: newDrive(w, id)})
	}
}

// zone is that of a compute node; "": it has none.
func (n *node) zone() string {
	switch {
	case n.w.h.Replicas == 0:
		return ""
	case n.i%2 == 0:
		return replicasZone
	}
	return votersZone
}

// promoted gives a replica a vote for a while. Then it is made a replica again as docs/deploy.md
// says: it is removed, and joins with an empty folder. The caller has w.operating.
func promoted(w *world, f history.Fault) error {
	s := w.server(f.On)
	if s == nil || !s.replica {
		return errBusy
	}
	err := w.ask(http.MethodPost, "/cluster/members/"+s.member()+"/promote", nil, 10*time.Second)
	if err == nil {
		w.count(coverage.ReplicaPromoted, 1)
	}
	<-w.operating // the operator does other things meanwhile
	time.Sleep(f.For)
	w.operating <- struct{}{}
	again := rejoins(w, f.On, time.Second)
	if err == nil && again == nil {
		w.count(coverage.ReplicaAgain, 1)
	}
	return errors.Join(err, again)
}
