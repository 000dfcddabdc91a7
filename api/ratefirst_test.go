package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/internal/rest"
)

// rateBed is a server whose compute nodes have one request a second, and ten at once.
func rateBed(t *testing.T) *bed {
	return bedOf(t, Config{Identify: byHeader, Limits: guard.Limits{Rate: map[matrix.Role]int{matrix.CN: 1}}})
}

// The rate is checked before the request's rights: one that would be
// refused costs as much as another. A client that has used up its rate gets 429 for
// every path, also for one that it may not read. Other clients are not delayed.
func TestRateIsTakenBeforeAuthorisation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := rateBed(t)
		cn := cn1.String()
		for n := range guard.RateBurst {
			if w := b.call("GET", "/cluster", "", asHeader, cn); w.Code != http.StatusForbidden {
				t.Fatalf("request %d: %s, want 403", n, pretty(w))
			}
		}
		for _, path := range []string{"/cluster", "/nics", "/nothing"} {
			begun := time.Now()
			w := b.call("GET", path, "", asHeader, cn)
			if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), rest.CodeLimited) {
				t.Errorf("GET %s without a token: %s, want 429", path, pretty(w))
			}
			if took := time.Since(begun); took != guard.LimitedPause {
				t.Errorf("GET %s: the 429 came after %v, want %v", path, took, guard.LimitedPause)
			}
		}
		begun := time.Now()
		for _, other := range []string{cn2.String(), "operator"} {
			if w := b.call("GET", "/nics", "", asHeader, other); w.Code != http.StatusOK || time.Since(begun) != 0 {
				t.Errorf("another identity: %s after %v, want 200 at once", pretty(w), time.Since(begun))
			}
		}
		time.Sleep(time.Second)
		if w := b.call("GET", "/nics", "", asHeader, cn); w.Code != http.StatusOK {
			t.Errorf("a second later: %s, want 200", pretty(w))
		}
	})
}

// The pause before a 429 ends with the request: a connection that went holds nothing.
func TestPauseEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := rateBed(t)
		for range guard.RateBurst {
			b.call("GET", "/nics", "", asHeader, cn1.String())
		}
		ctx, cancel := context.WithTimeout(t.Context(), guard.LimitedPause/2)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/nics", http.NoBody)
		r.Header.Set(asHeader, cn1.String())
		begun := time.Now()
		b.s.Handler().ServeHTTP(httptest.NewRecorder(), r)
		if took := time.Since(begun); took != guard.LimitedPause/2 {
			t.Errorf("it went on for %v after its end at %v", took, guard.LimitedPause/2)
		}
	})
}

// A program without a certificate has the rate of its address, on listeners that are
// not the API's own too; another address has its own.
func TestProgramsHaveARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Store: newMemory(), Limits: guard.Limits{Rate: map[matrix.Role]int{matrix.Foreign: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		enter := func(address string) (status int) {
			w := httptest.NewRecorder()
			leave, ok := s.Enter(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/nics", http.NoBody), matrix.Identity{Role: matrix.Foreign, Name: address})
			if ok {
				leave()
			}
			return w.Code
		}
		for n := range guard.RateBurst {
			if got := enter("10.0.0.1"); got != http.StatusOK {
				t.Fatalf("request %d: %d, want it let in", n, got)
			}
		}
		begun := time.Now()
		if got := enter("10.0.0.1"); got != http.StatusTooManyRequests || time.Since(begun) != guard.LimitedPause {
			t.Errorf("one too many: %d after %v, want 429 after %v", got, time.Since(begun), guard.LimitedPause)
		}
		if got := enter("10.0.0.2"); got != http.StatusOK {
			t.Errorf("another address: %d, want it let in", got)
		}
	})
}
