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
	view func(fn func(*projections.State)) // immutable
	head func() log.Seq                    // immutable

	mu    sync.Mutex // protects what follows
	at    time.Time
	seq   log.Seq // of the state that was looked at
	lines []string
	nodes int
}

// look returns the warnings, and the number of these nodes.
func (u *underlayWatch) look() ([]string, int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	seq := u.head()
	if u.at.IsZero() || seq != u.seq && time.Since(u.at) >= underlayEvery {
		u.view(func(s *projections.State) { u.lines, u.nodes = underlay.Warnings(s) })
		u.at, u.seq = time.Now(), seq
	}
	return u.lines, u.nodes
}

// warnings are those of /readyz?verbose.
func (u *underlayWatch) warnings() []string {
	lines, _ := u.look()
	return lines
}

// collector exports the number of the nodes.
func (u *underlayWatch) collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rutter_underlay_narrow_nodes", Help: "Compute nodes whose underlay does not carry a network there: GET /readyz?verbose names them.",
	}, func() float64 {
		_, nodes := u.look()
		return float64(nodes)
	})
}
