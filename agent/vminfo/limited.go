package vminfo

import (
	"encoding/json"
	"net/http"
)

// notAllowed is the answer to a client that may not request a scan.
const notAllowed = "Only root, and the users of --vminfod-users, may ask this"

// allowed reports whether a client may see everything. The first client that is unknown
// is logged, because then programs that need everything do not get it.
func (s *Service) allowed(r *http.Request) bool {
	if s.cfg.Allow == nil {
		return true
	}
	ok, err := s.cfg.Allow(r)
	if err == nil {
		return ok
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unknown {
		s.unknown = true
		s.cfg.Logger.Warn("a client of vminfod is unknown: it gets the public fields of VMs (--vminfod-users all shows everything to each client); others like it are not logged", "address", r.RemoteAddr, "error", err)
	}
	return false
}

// counts is a status without texts, which may quote manifests and clients.
func (s *Service) counts() Status {
	status := s.Status(false)
	status.RefreshErrors, status.EventsListeners = status.RefreshErrors[:0], map[string]ListenerStatus{}
	for i := range status.Rutter.Sources {
		source := &status.Rutter.Sources[i]
		source.Skips, source.Aside, source.Log, source.Errors = nil, source.Aside[:0], nil, nil
	}
	return status
}

func (s *Service) countsJSON() []byte {
	b, err := json.Marshal(s.counts())
	if err != nil {
		panic(err) // no field of Status can fail
	}
	return b
}
