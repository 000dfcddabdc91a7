package world

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/history"
)

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
func (w *world) addReplicas() {
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
func (w *world) promoted(f history.Fault) error {
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
	again := w.rejoins(f.On, time.Second)
	if err == nil && again == nil {
		w.count(coverage.ReplicaAgain, 1)
	}
	return errors.Join(err, again)
}
