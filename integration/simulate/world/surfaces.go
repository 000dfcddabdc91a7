package world

import (
	"context"
	"sync"
)

// useSurfaces starts the clients of the surfaces beside writes, reads and the log, until ctx ends.
func (w *world) useSurfaces(ctx context.Context, work *sync.WaitGroup) {
	l := newListener(w)
	w.listeners = append(w.listeners, l)
	l.start(w.ctx)
	work.Go(func() { newStreamer(w).run(ctx) })
	work.Go(func() { w.runVMs(ctx) })
	for i := range 2 {
		work.Go(func() { newAsker(w, i).run(ctx) })
	}
}
