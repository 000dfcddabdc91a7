package cnapi

import (
	"net/http"
	gometrics "runtime/metrics"

	"rutter/api/internal/rest"
	"rutter/log"
)

// info answers GET /info: the version of what serves CNAPI here.
func (s *Service) info(w http.ResponseWriter, r *http.Request) error {
	rest.WriteJSON(w, r, http.StatusOK, map[string]any{"version": s.cfg.Version})
	return nil
}

// memories are the names that CNAPI has, which are those of Node, for figures of Go.
var memories = []gometrics.Sample{
	{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
}

// diagnostics answers GET /diagnostics: since when it serves, and its memory in bytes. No
// callback of a task is kept: a request that waits for one looks at the log.
func (s *Service) diagnostics(w http.ResponseWriter, r *http.Request) error {
	samples := append([]gometrics.Sample(nil), memories...)
	gometrics.Read(samples)
	figure := func(i int) uint64 {
		if samples[i].Value.Kind() != gometrics.KindUint64 {
			return 0
		}
		return samples[i].Value.Uint64()
	}
	rest.WriteJSON(w, r, http.StatusOK, map[string]any{
		"start_timestamp": log.TimeOf(s.begun.UTC()), "taskCallbacks": map[string]any{},
		"memory": map[string]uint64{"rss": figure(0), "heapTotal": figure(1) + figure(2), "heapUsed": figure(1)},
	})
	return nil
}
