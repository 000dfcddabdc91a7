package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rutter/agent/zone"
)

// askZone is Config.AskZone: each server's zone is its name.
func (s *servers) askZone(_ context.Context, server string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down[server] && !s.lies {
		return "", errDown
	}
	return server, nil
}

// TestGoesHome: an agent away from its zone goes back to it when a server there is ready,
// from its cursor, and is fed all the time. A server that cannot be connected to costs it
// nothing.
func TestGoesHome(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, k := newServers(t), new(fakeKernel)
		s.zone = "east"
		s.setDown(true, "east")
		a, stop := running(t, folder, s, k, "west", "east", "north") // of those elsewhere, north is the first of this node
		defer stop()
		const soon = zone.DefaultSettle + 3*zone.DefaultEvery
		follows := func(what, server string, away bool, moves uint64, sessions uint64) {
			t.Helper()
			synctest.Wait()
			if st := a.Status(); st.State != Following || st.Server != server || st.Away != away || st.Moves != moves || st.Session != sessions || st.Resets != 1 || st.Age != 0 {
				t.Errorf("%s: %s on %s, away %t, %d moves, session %d, %d resets, not fed for %v; want it on %s, away %t, %d moves, session %d, and only the first reset",
					what, st.State, st.Server, st.Away, st.Moves, st.Session, st.Resets, st.Age, server, away, moves, sessions)
			}
		}
		time.Sleep(soon)
		follows("while no server of its zone is there", "north", true, 0, 1)
		s.mu.Lock()
		s.lies = true
		s.mu.Unlock()
		time.Sleep(2 * soon)
		follows("while one says that it is ready, and is not", "north", true, 0, 1)
		s.mu.Lock()
		s.lies = false
		s.mu.Unlock()
		s.change(nicOp(t, macOf(9), 1, 1, 1, "10.0.0.19"))
		s.setDown(false, "east")
		time.Sleep(soon)
		follows("when one is ready", "east", false, 1, 2)
		s.mu.Lock()
		if hello := s.hellos[len(s.hellos)-1]; hello.Cursor.Seq != s.log.head() || len(hello.Scopes) == 0 {
			t.Errorf("the hello there is of seq %d with %d scopes; want %d, and what it holds", hello.Cursor.Seq, len(hello.Scopes), s.log.head())
		}
		s.mu.Unlock()
		s.setDown(true, "east")
		s.cut()
		time.Sleep(time.Second)
		follows("when that one ends", "north", true, 1, 4)
		s.setDown(true, "west", "north")
		s.setDown(false, "east")
		s.cut()
		time.Sleep(5 * time.Second)
		follows("when only its own is left", "east", false, 1, a.Status().Session)
	})
}
