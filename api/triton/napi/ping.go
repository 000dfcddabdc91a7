package napi

import (
	"net/http"
	"runtime"
	"sync"
	"time"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// pingForm is NAPI's answer to a ping (spec/napi.md section 3.2).
type pingForm struct {
	Config   pingConfig        `json:"config"`
	Healthy  bool              `json:"healthy"`
	Services map[string]string `json:"services"`
	Status   string            `json:"status"`
}

type pingConfig struct {
	Fabrics     bool `json:"fabrics_enabled"`
	SubnetAlloc bool `json:"subnet_alloc_enabled"`
}

// ping answers 503 until this server can serve.
func (s *Service) ping(w http.ResponseWriter, r *http.Request) error {
	answer := pingForm{
		Config: pingConfig{Fabrics: true, SubnetAlloc: s.feature() >= log.FeatureTriton}, Healthy: true, Status: "OK",
		Services: map[string]string{"moray": "online"}, // the store of NAPI; here the log
	}
	status := http.StatusOK
	if s.store.Ready() != nil || s.store.Serving() != nil {
		answer.Healthy, answer.Status, answer.Services["moray"] = false, "initializing", "offline"
		status = http.StatusServiceUnavailable
	}
	rest.WriteJSON(w, r, status, answer)
	return nil
}

// feature is the feature version of the log that this server has.
func (s *Service) feature() (version uint32) {
	s.store.View(func(state *projections.State, _ log.Cursor) { version = state.Feature() })
	return version
}

// collectPause bounds how often a client can run the garbage collector: each run reads
// all of the state.
const collectPause = time.Minute

// collector remembers the last collection that a client asked for.
type collector struct {
	mu   sync.Mutex // protects what follows
	last collection
	at   time.Time
}

// collection is NAPI's answer to GET /manage/gc: memory before and after.
type collection struct {
	Start memoryForm `json:"start"`
	End   memoryForm `json:"end"`
}

type memoryForm struct {
	HeapTotal uint64 `json:"heapTotal"` // bytes
	HeapUsed  uint64 `json:"heapUsed"`  // bytes
	Time      int64  `json:"time"`      // ms since 1970
}

// collect answers GET /manage/gc: it runs the collector, and reports the result. Within
// collectPause of the last run it reports that one.
func (s *Service) collect(w http.ResponseWriter, r *http.Request) error {
	s.collected.mu.Lock()
	defer s.collected.mu.Unlock()
	if now := time.Now(); s.collected.at.IsZero() || now.Sub(s.collected.at) >= collectPause {
		start := memoryNow()
		runtime.GC()
		s.collected.last, s.collected.at = collection{start, memoryNow()}, now
	}
	rest.WriteJSON(w, r, http.StatusOK, s.collected.last)
	return nil
}

func memoryNow() memoryForm {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memoryForm{m.HeapSys, m.HeapAlloc, time.Now().UnixMilli()}
}
