package serve

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"rutter/api"
	"rutter/api/backend"
	"rutter/cmd/rutter/backup"
	"rutter/raftstore"
)

// newBackups returns the schedule of a server's backups; nil if there is none.
func newBackups(cfg Options, store *raftstore.Store, logger *slog.Logger) *backup.Schedule {
	return backup.New(backup.Config{
		Settings: cfg.Backup, Server: cfg.Store.ID, Data: cfg.Store.Dir, Launcher: cfg.BackupLauncher, Logger: logger, Now: cfg.Store.Now,
		Source: func(ctx context.Context) (backup.Image, error) {
			b, err := store.Backup(ctx)
			if err != nil {
				return backup.Image{}, err
			}
			return backup.Image{ReadCloser: b, Cluster: b.Cluster, Seq: b.Seq, Size: b.Size}, nil
		},
		Confirm:  store.CheckCursor,
		Head:     store.Head,
		LowWater: func() int64 { return store.Status().Room.LowWater },
		Ready: func() error {
			if err := store.Serving(); err != nil {
				return err
			}
			return store.Ready()
		},
		Rank: func() (i, n int) {
			members := store.Status().Members
			slices.SortFunc(members, func(a, b raftstore.MemberStatus) int { return strings.Compare(a.ID, b.ID) })
			i = slices.IndexFunc(members, func(m raftstore.MemberStatus) bool { return m.ID == cfg.Store.ID })
			return max(i, 0), len(members)
		},
	})
}

// scheduled adapts a schedule to package api.
type scheduled struct{ *backup.Schedule }

// Status implements api.Scheduled.
func (s scheduled) Status() api.BackupStatus {
	st := s.Schedule.Status()
	form := api.BackupStatus{
		On: st.On, Folder: st.Folder, Every: st.Every, Keep: st.Keep, Running: st.Running, Next: st.Next, Verified: st.Verified, Age: st.Age, Took: st.Took,
		Kept: st.Kept, Others: st.Others, OldLogs: st.OldLogs, Rechecks: st.Rechecks, OldestCheck: st.OldestCheck, SameDisk: st.SameDisk, Made: st.Made, Failures: st.Failures, Error: st.Error, FailedAt: st.FailedAt, Alarms: st.Alarms,
	}
	for _, d := range st.Damaged {
		form.Damaged = append(form.Damaged, api.DamagedBackup{Name: d.Name, Reason: d.Reason})
	}
	if st.Last != nil {
		form.Last = &api.BackupFile{Name: st.Last.Name, Cluster: st.Last.Cluster, Seq: st.Last.Seq, At: st.Last.At, Bytes: st.Last.Bytes, Checked: st.Last.Checked}
	}
	return form
}

// alarmedStore adds alarms to a store's status that the store itself does not know.
type alarmedStore struct {
	loadedStore
	alarms func() []string
}

// Status implements backend.Store.
func (s alarmedStore) Status() backend.Status {
	status := s.loadedStore.Status()
	status.Alarms = append(status.Alarms, s.alarms()...)
	return status
}
