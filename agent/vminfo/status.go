package vminfo

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource"
)

// Status is the answer to /status: the form of today's vminfod, the fields of RFD 39,
// and our own in "rutter".
type Status struct {
	PID             int                       `json:"pid"`
	Uptime          string                    `json:"uptime"`
	Memory          MemoryStatus              `json:"memory"`
	State           string                    `json:"state"`  // stopped, booting, running or paused
	Status          string                    `json:"status"` // free text
	NumVMs          int                       `json:"numVms"`
	CurDate         string                    `json:"curDate"`
	CurTime         string                    `json:"curTime"` // monotonic: seconds.nanoseconds
	Queue           QueueStatus               `json:"queue"`
	LastRefresh     *string                   `json:"lastRefresh"`
	RefreshErrors   []vmsource.Failure        `json:"refreshErrors"`
	EventsListeners map[string]ListenerStatus `json:"eventsListeners"`
	RefreshLog      []vmsource.Refresh        `json:"refreshLog,omitempty"` // full only
	FSWatcher       []vmsource.Status         `json:"fswatcher,omitempty"`  // full only
	Rutter          ServiceStatus             `json:"rutter"`
}

// MemoryStatus has the names of node's process.memoryUsage, in bytes.
type MemoryStatus struct {
	RSS       uint64 `json:"rss"`
	HeapTotal uint64 `json:"heapTotal"`
	HeapUsed  uint64 `json:"heapUsed"`
	External  uint64 `json:"external"`
}

// QueueStatus is the queue of work in both shapes: Now to VasyncQueue are those
// of vminfod, the rest are RFD 39's.
type QueueStatus struct {
	Now         string      `json:"now"`
	Paused      bool        `json:"paused"`
	Idle        bool        `json:"idle"`
	VasyncQueue VasyncQueue `json:"vasync_queue"`
	Working     bool        `json:"working"`
	MaxJobs     int         `json:"max_jobs"`
	Channels    []string    `json:"channels"`
	Backlog     []string    `json:"backlog"`
}

// VasyncQueue is the inner queue of vminfod.
type VasyncQueue struct {
	Concurrency int               `json:"concurrency"`
	NPending    int               `json:"npending"`
	NQueued     int               `json:"nqueued"`
	Pending     map[string]string `json:"pending"`
	Queued      []string          `json:"queued"`
}

// ListenerStatus is one client that follows /events.
type ListenerStatus struct {
	UserAgent   string `json:"userAgent"`
	CreatedTime string `json:"createdTime"`
	CreatedDate string `json:"createdDate"`
	CreatedAgo  string `json:"createdAgo"`
	Behind      uint64 `json:"behind"` // events that were not sent to it yet
}

// ServiceStatus has what vminfod has no field for.
type ServiceStatus struct {
	Log         string            `json:"log"` // id of the events
	Seq         uint64            `json:"seq"`
	Events      int               `json:"events"` // kept
	EventBytes  int               `json:"eventBytes"`
	Lost        uint64            `json:"listenersLost"`
	Refused     uint64            `json:"listenersRefused"`
	MaxListener int               `json:"listenersMost"`
	Sources     []vmsource.Status `json:"sources"`
}

// Status returns the service's status; full also with what vminfod leaves out
// otherwise.
func (s *Service) Status(full bool) Status {
	now := s.store.Cfg.Now()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	status := Status{
		PID: os.Getpid(), Uptime: vmsource.PrettySeconds(now.Sub(s.started)),
		Memory:  MemoryStatus{RSS: residentBytes(), HeapTotal: mem.HeapSys, HeapUsed: mem.HeapAlloc, External: mem.Sys - mem.HeapSys},
		CurDate: vmdoc.FormatDate(now), CurTime: s.clock(now), NumVMs: s.store.Count(),
		RefreshErrors: []vmsource.Failure{}, Status: "working", EventsListeners: make(map[string]ListenerStatus),
	}
	s.addOwn(&status, now)
	waiting := 0
	var last time.Time
	for _, source := range s.cfg.Sources {
		st := s.statusOf(source)
		waiting += st.Waiting
		if st.LastScan.After(last) {
			last = st.LastScan
		}
		status.RefreshErrors = append(status.RefreshErrors, st.Errors...)
		status.Rutter.Sources = append(status.Rutter.Sources, st)
		if full {
			status.RefreshLog = append(status.RefreshLog, st.Log...)
			status.FSWatcher = append(status.FSWatcher, st)
		}
	}
	if !last.IsZero() {
		date := vmdoc.FormatDate(last)
		status.LastRefresh = &date
	}
	status.Queue = QueueStatus{
		Now: status.CurTime, Idle: waiting == 0, Working: waiting > 0, MaxJobs: 1, Channels: []string{}, Backlog: []string{},
		VasyncQueue: VasyncQueue{Concurrency: 1, NQueued: waiting, Pending: map[string]string{}, Queued: []string{}},
	}
	return status
}

func (s *Service) addOwn(status *Status, now time.Time) {
	own := &status.Rutter
	own.Log, own.MaxListener = s.store.ID(), s.cfg.Listeners
	own.Events, own.EventBytes, own.Seq = s.store.Kept()
	s.mu.Lock()
	defer s.mu.Unlock()
	status.State, own.Lost, own.Refused = s.state, s.lost, s.refused
	if s.state != "running" {
		status.Status = s.state
	}
	for _, id := range slices.Sorted(maps.Keys(s.listeners)) {
		l := s.listeners[id]
		status.EventsListeners[id] = ListenerStatus{
			UserAgent: l.userAgent, CreatedTime: s.clock(l.created), CreatedDate: vmdoc.FormatDate(l.created),
			CreatedAgo: vmsource.PrettySeconds(now.Sub(l.created)), Behind: own.Seq - min(own.Seq, l.sent),
		}
	}
}

// clock is a monotonic time as node's process.hrtime is printed.
func (s *Service) clock(t time.Time) string {
	d := t.Sub(s.started)
	return fmt.Sprintf("%d.%d", d/time.Second, d%time.Second)
}

func (s *Service) statusJSON(full bool) []byte {
	b, err := json.Marshal(s.Status(full))
	if err != nil {
		panic(err) // no field of Status can fail
	}
	return b
}

// residentBytes is the memory of this process that is not swapped out
// (proc(5), statm: the second number, in pages).
func residentBytes() uint64 {
	var size, resident uint64
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize())
}
