package vminfo

import (
	"encoding/json"
	"net/http"
)

// Answers with 403.
const (
	// notAllowed is for a client that may not request a scan.
	notAllowed = "Only root, and the users of --vminfod-users, may ask this"
	// notKnown is for a client of which the kernel does not say whose it is.
	notKnown = "It is unknown whose connection this is: --vminfod-users all answers such clients"
)

// access reports whether a client sees the public fields only, and whether it is unknown.
// The first client that is unknown is logged.
func (s *Service) access(r *http.Request) (limited, unknown bool) {
	if s.cfg.Allow == nil {
		return false, false
	}
	ok, err := s.cfg.Allow(r)
	if err == nil {
		return !ok, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unknown {
		s.unknown = true
		s.cfg.Logger.Warn("a client of vminfod is unknown and gets no VMs (--vminfod-users all answers such clients); others like it are not logged", "address", r.RemoteAddr, "error", err)
	}
	return true, true
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
