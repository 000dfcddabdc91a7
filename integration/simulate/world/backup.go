package world

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/raftstore"
	"rutter/raftstore/offline"
)

// backup is a snapshot of the cluster in a file of the operator.
type backup struct {
	path string
	at   log.Cursor
}

// snapshot takes a backup through a server, or through any.
func (w *world) snapshot(f history.Fault) error {
	api, err := w.client(w.net.Host("operator"), f.On, 0)
	if err != nil {
		return err
	}
	defer api.Close()
	path := filepath.Join(w.folder, fmt.Sprintf("backup%d", f.At))
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	defer cancel()
	got, err := api.Snapshot(ctx, file, nil)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.backups = append(w.backups, backup{path, log.Cursor{Cluster: got.Cluster, Seq: got.Seq}})
	return nil
}

// restore begins the cluster anew from the last backup, as docs/backup.md says: all servers
// stop, one gets the backup and a new name, and the others join it with empty folders.
func (w *world) restore() error {
	w.mu.Lock()
	if len(w.backups) == 0 {
		w.mu.Unlock()
		return errBusy
	}
	last := w.backups[len(w.backups)-1]
	w.mu.Unlock()
	for i, s := range w.servers {
		if !s.claim() {
			for _, other := range w.servers[:i] {
				other.release()
			}
			return errBusy
		}
	}
	defer func() {
		for _, s := range w.servers {
			s.release()
		}
	}()
	e := seen.Restored{To: last.at}
	for _, s := range w.servers {
		if store := s.store(); store != nil && store.Head().Seq > e.From.Seq {
			e.From = store.Head()
		}
		if err := s.stop(); err != nil {
			w.seen.Add(s.name, seen.Process{State: "stopped", Err: err.Error()})
		}
	}
	for i, s := range w.servers {
		s.rename(i > 0)
		if err := s.empty(); err != nil {
			return err
		}
		if i == 0 {
			content, err := offline.Restore(last.path, offline.Rebirth{Dir: s.dir, Member: raftstore.Member{ID: s.member(), Address: s.address(peerPort)}, Now: s.clock.now})
			if err != nil {
				return fmt.Errorf("restore: %w", err)
			}
			e.To = content.Head
			w.seen.Add(s.name, e)
		}
		if err := w.begin(s); err != nil {
			return err
		}
	}
	return nil
}

// rename gives the machine's next server a name that the cluster never had.
func (s *server) rename(joins bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives++
	s.id, s.removed, s.joins, s.alone = fmt.Sprintf("%s-%d", s.name, s.lives), false, joins, !joins
}

// restoredTo is the end of what stays of an accepted write at a place of the log of records:
// the lowest seq of a backup that was restored later; ok is false if there was none.
func restoredTo(records []seen.Record, after int) (to log.Seq, ok bool) {
	for _, r := range records[after:] {
		if e, is := r.Event.(seen.Restored); is && (!ok || e.To.Seq < to) {
			to, ok = e.To.Seq, true
		}
	}
	return to, ok
}

// remove takes a server out of the cluster.
func (w *world) remove(id string, within time.Duration) error {
	return w.ask(http.MethodDelete, "/cluster/members/"+id, nil, within)
}
