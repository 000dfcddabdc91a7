package gateway

import (
	"fmt"
	"net"
	"net/http"
	"sync"

	"rutter/api/auth/matrix"
	"rutter/api/internal/rest"
)

// slots count the requests that are with the old service, by identity.
type slots struct {
	mu   sync.Mutex // protects what follows
	all  int
	each map[string]int
}

// enter takes a slot for a request, or returns the answer to one too many.
func (s *slots) enter(r *http.Request, name string) (leave func(), err error) {
	key := keyOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.each[key] >= MaxUnderWay:
		return nil, rest.Fail(http.StatusTooManyRequests, rest.CodeLimited, "wait until some are answered", "%d requests of %s are already with %s", MaxUnderWay, key, name)
	case s.all >= MaxTotal:
		return nil, rest.Fail(http.StatusServiceUnavailable, rest.CodeUnavailable, "try again later", "%d requests are already with %s", MaxTotal, name)
	}
	if s.each == nil {
		s.each = make(map[string]int)
	}
	s.all++
	s.each[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.each[key]--; s.each[key] == 0 {
			delete(s.each, key)
		}
	}, nil
}

func (s *slots) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// keyOf names who asks: the identity, or the address.
func keyOf(r *http.Request) string {
	if who, ok := matrix.From(r.Context()); ok {
		return who.Key()
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return fmt.Sprintf("%.60q", r.RemoteAddr)
	}
	return host
}
