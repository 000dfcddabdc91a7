package world

import (
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
)

const (
	// successionLook is how often it is looked whether there is another leader.
	successionLook = 10 * time.Millisecond
	// successionMost is how long it is looked.
	successionMost = 8 * time.Second
)

// succeeds records how long it takes until another server leads, if s leads and ends now.
func succeeds(w *world, s *server, how history.Kind) {
	store := s.store()
	if store == nil {
		return
	}
	if _, leads := store.Leading(); !leads {
		return
	}
	for _, other := range w.servers {
		if other != s && (other.store() == nil || other.store().Ready() != nil) {
			return
		}
	}
	w.zombies.Go(func() {
		begun := time.Now()
		for time.Since(begun) < successionMost && w.ctx.Err() == nil {
			for _, other := range w.servers {
				if next := other.store(); next != nil && next != store {
					if _, leads := next.Leading(); leads {
						w.seen.Add(s.name, seen.Succession{How: how, By: other.name, Took: time.Since(begun)})
						return
					}
				}
			}
			time.Sleep(successionLook)
		}
		if w.ctx.Err() == nil {
			w.seen.Add(s.name, seen.Succession{How: how, Took: time.Since(begun)})
		}
	})
}
