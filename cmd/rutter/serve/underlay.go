package serve

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/underlay"
)

// underlayEvery bounds how often the state is looked at for networks that do not fit: that
// takes 40 ms with half a million NICs on narrow nodes, and monitoring asks often.
const underlayEvery = 5 * time.Second

// underlayWatch knows which compute nodes have an underlay that does not carry a network
// there. It may be used from any goroutine.
type underlayWatch struct {
	view func(fn func(*projections.State, log.Cursor)) // set by collector, before any other call

	mu    sync.Mutex // protects what follows
	at    time.Time
	head  log.Cursor // of the state that was looked at
	lines []string
	nodes int
}

// look returns the warnings, and the number of these nodes.
func (u *underlayWatch) look() ([]string, int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at.IsZero() || time.Since(u.at) >= underlayEvery {
		u.view(func(s *projections.State, head log.Cursor) {
			if head != u.head || u.at.IsZero() {
				u.lines, u.nodes = underlay.Warnings(s)
			}
			u.head = head
		})
		u.at = time.Now()
	}
	return u.lines, u.nodes
}

// warnings are those of /readyz?verbose.
func (u *underlayWatch) warnings() []string {
	lines, _ := u.look()
	return lines
}

// collector makes u look by view, and exports the number of the nodes.
func (u *underlayWatch) collector(view func(fn func(*projections.State, log.Cursor))) prometheus.Collector {
	u.view = view
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rutter_underlay_narrow_nodes", Help: "Compute nodes whose underlay does not carry a network there: GET /readyz?verbose names them.",
	}, func() float64 {
		_, nodes := u.look()
		return float64(nodes)
	})
}
