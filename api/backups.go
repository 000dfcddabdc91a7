package api

import (
	"net/http"
	"time"

	"rutter/api/internal/rest"
	"rutter/log"
)

// Scheduled is the schedule of a server's backups.
type Scheduled interface {
	// Status returns what was made, and what is due.
	Status() BackupStatus
	// Now begins a backup beside the schedule, and does not wait for it.
	Now() error
}

// BackupStatus is the state of a server's backups. Times are by the server's clock.
type BackupStatus struct {
	Server      string          `json:"server"` // id
	On          bool            `json:"on"`     // there is a schedule
	Folder      string          `json:"folder,omitempty"`
	Every       string          `json:"every,omitempty"` // as in 24h0m0s
	Keep        int             `json:"keep,omitempty"`
	Running     bool            `json:"running,omitempty"`
	Next        time.Time       `json:"next,omitzero"` // when one is due
	Last        *BackupFile     `json:"last,omitempty"`
	Verified    time.Time       `json:"verified,omitzero"`
	Age         float64         `json:"age_seconds,omitempty"`  // of Last
	Took        float64         `json:"took_seconds,omitempty"` // the last one that was made
	Kept        int             `json:"kept"`
	Others      int             `json:"other_files,omitempty"`   // in the folder
	OldLogs     int             `json:"old_log_files,omitempty"` // backups of logs that are no more, of any server
	Damaged     []DamagedBackup `json:"damaged,omitempty"`
	Rechecks    uint64          `json:"rechecks_total"`        // of kept backups
	OldestCheck time.Time       `json:"oldest_check,omitzero"` // of those that are kept
	SameDisk    bool            `json:"same_disk,omitempty"`   // as the data folder
	Made        uint64          `json:"made_total"`
	Failures    uint64          `json:"failures_total"`
	Error       string          `json:"error,omitempty"` // of the last try, if it failed
	FailedAt    time.Time       `json:"failed,omitzero"`
	Alarms      []string        `json:"alarms,omitempty"`
}

// BackupFile is a backup in its folder.
type BackupFile struct {
	Name    string    `json:"name"`
	Cluster log.UUID  `json:"cluster"`
	Seq     log.Seq   `json:"seq"`
	At      time.Time `json:"time"` // when it was begun
	Bytes   int64     `json:"bytes"`
	Checked time.Time `json:"checked"` // when it was restored last
}

// DamagedBackup is a kept backup that has changed since it was made.
type DamagedBackup struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// getSchedule answers GET /snapshot/schedule.
func (c *clusterRoutes) getSchedule(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, c.scheduleStatus())
	return nil
}

// runSchedule answers POST /snapshot/schedule: a backup begins.
func (c *clusterRoutes) runSchedule(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	if c.schedule == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server makes no backups")
	}
	st := c.scheduleStatus() // with the counts of before, which the client compares with later ones
	if err := c.schedule.Now(); err != nil {
		return rest.Fail(http.StatusConflict, rest.CodeBadRequest, "set backup-every and backup-folder in [server] of its settings, and restart it", "%v", err)
	}
	c.logger.Info("a backup was asked for", "actor", c.guard.Actor(r))
	rest.WriteJSON(w, r, http.StatusAccepted, st)
	return nil
}

func (c *clusterRoutes) scheduleStatus() (st BackupStatus) {
	if c.schedule != nil {
		st = c.schedule.Status()
	}
	st.Server = c.store.Status().ID
	return st
}
