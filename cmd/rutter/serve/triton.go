package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"rutter/api"
	"rutter/api/auth/allow"
	"rutter/api/auth/matrix"
	"rutter/api/auth/webcheck"
	"rutter/api/triton/napi"
	"rutter/cmd/rutter/storeapi"
	"rutter/log"
)

// TritonSurfaces are Triton's services that can have a listener of their own, with
// the flag of the same name.
var TritonSurfaces = []string{"napi", "cnapi", "vmapi"}

// MTUs of the fabric networks that are made through NAPI, in bytes.
const (
	DefaultOverlayMTU = napi.DefaultOverlayMTU
	MinOverlayMTU     = napi.MinNetworkMTU
	MaxOverlayMTU     = napi.MaxNetworkMTU
)

// TritonOptions are a server's options for Triton's programs.
type TritonOptions struct {
	Addresses  map[string]string // by surface, without those that are off
	Allow      allow.List
	Admin      log.UUID
	OverlayTag string
	OverlayMTU uint32   // bytes
	Hosts      []string // as Options.Hosts
	// Behind are the base URLs of the old services behind the surfaces vmapi and cnapi.
	Behind map[string]string
	// PlacementBehind leaves /allocate, /capacity and the waitlist to the old CNAPI.
	PlacementBehind bool

	listen func(address string) (net.Listener, error) // Options.Listen
}

// triton has the surfaces for Triton's programs: under the API's paths, and on
// listeners of their own.
type triton struct {
	cfg    TritonOptions
	logger *slog.Logger
	napi   *napi.Service
	ports  []*tritonPort
}

// tritonPort is the listener of one surface.
type tritonPort struct {
	surface  string
	listener *allow.Listener
	gate     *allow.Handler
}

// cutOff closes the connections of programs at matching addresses, on the surfaces
// where they have no rights now, and returns their number.
func (t *triton) cutOff(match func(netip.Addr) bool) (n int) {
	for _, p := range t.ports {
		n += p.listener.CutOff(func(ip netip.Addr) bool { return match(ip) && p.gate.Of(ip) == allow.None })
	}
	return n
}

// newTriton makes the surfaces.
func newTriton(cfg TritonOptions, store storeapi.SurfaceStore, changefeeds *api.Surface, logger *slog.Logger) (*triton, error) {
	t := &triton{cfg: cfg, logger: logger}
	var err error
	t.napi, err = napi.New(napi.Config{
		Store: store, NewID: store.NewID, Logger: logger, Changefeeds: changefeeds.Routes, Admin: cfg.Admin, OverlayTag: cfg.OverlayTag,
		OverlayMTU: cfg.OverlayMTU,
	})
	return t, err
}

// napiRoots are the paths of NAPI that the API also serves at its root, because no path
// of the API has the same name.
var napiRoots = []string{"/fabrics", "/network_pools", "/aggregations", "/routers", "/search/ips"}

// napiMounts are NAPI's paths in the API.
func napiMounts(table *api.Surface) []api.Mount {
	mounts := []api.Mount{{Path: "/napi", Table: table, Strip: true}}
	for _, path := range napiRoots {
		mounts = append(mounts, api.Mount{Path: path, Table: table})
	}
	return mounts
}

// listen opens the listeners of surfaces, by name.
func (t *triton) listen(surfaces map[string]*api.Surface, granted func(netip.Addr, string) (allow.Right, bool), enter func(http.ResponseWriter, *http.Request, matrix.Identity) (func(), bool)) error {
	for _, name := range TritonSurfaces {
		address, on := t.cfg.Addresses[name]
		if !on {
			continue
		}
		table := surfaces[name]
		if table == nil {
			return fmt.Errorf("--%s: this program has no such surface", name)
		}
		l, err := t.cfg.listen(address)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		gate := &allow.Handler{
			List: t.cfg.Allow, Surface: name, Granted: granted, Enter: enter,
			Refused: func(r *http.Request, why string) {
				t.logger.Warn("a program without a certificate was refused", "surface", name, "from", r.RemoteAddr, "asked", r.Method+" "+r.URL.Path, "why", why)
			},
		}
		gate.Serve(table, webcheck.NewHosts(l.Addr(), webcheck.Names{Configured: t.cfg.Hosts, Setting: hostSetting}))
		t.ports = append(t.ports, &tritonPort{name, allow.NewListener(l, gate.Of, t.logger.With("surface", name)), gate})
	}
	return nil
}

// Times of the listeners, the same as those of the API.
const (
	tritonHeaderTime = 10 * time.Second
	tritonBodyTime   = 30 * time.Second
	tritonAnswerTime = 60 * time.Second
	tritonIdleTime   = 120 * time.Second
	tritonDrainTime  = 10 * time.Second
	tritonHeader     = 64 << 10 // bytes
)

// run serves the listeners until ctx ends, and returns when every one has ended.
func (t *triton) run(ctx context.Context) error {
	g := new(errgroup.Group)
	for _, p := range t.ports {
		t.logger.Warn("this port has no TLS: clients are identified by their address only", "surface", p.surface, "address", p.listener.Addr(), "networks", t.cfg.Allow.Len())
		g.Go(func() error { return p.run(ctx, t.logger) })
	}
	return g.Wait()
}

func (p *tritonPort) run(ctx context.Context, logger *slog.Logger) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler:           timed(p.gate),
		ReadHeaderTimeout: tritonHeaderTime, IdleTimeout: tritonIdleTime, MaxHeaderBytes: tritonHeader,
		BaseContext: func(net.Listener) context.Context { return requests },
		ErrorLog:    slog.NewLogLogger(api.ServerLog{Handler: logger.Handler()}, slog.LevelDebug),
		// The library would answer "OPTIONS *" to addresses that may do nothing here.
		DisableGeneralOptionsHandler: true,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(p.listener) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
		served <- err
		err = fmt.Errorf("%s: serve %s: %w", p.surface, p.listener.Addr(), err)
	}
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), tritonDrainTime)
	defer stop()
	_ = server.Shutdown(grace) // requests that do not end in time are cut off
	cancel()
	_ = server.Close()
	<-served
	return err
}

// timed bounds the time for reading a body and for writing an answer. A connection that
// is taken over, as by the change feed, has neither bound.
func timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(tritonBodyTime)) // connections of a listener support deadlines
		_ = control.SetWriteDeadline(time.Now().Add(tritonAnswerTime))
		next.ServeHTTP(w, r)
	})
}

// close closes the listeners of a server that never runs.
func (t *triton) close() error {
	var errs []error
	for _, p := range t.ports {
		errs = append(errs, p.listener.Close())
	}
	return errors.Join(errs...)
}

// warnings name the listeners, for /readyz?verbose.
func (t *triton) warnings() []string {
	var all []string
	for _, p := range t.ports {
		all = append(all, fmt.Sprintf("no TLS at %s (--%s): programs of %d networks are believed by their address (--triton-allow)", p.listener.Addr(), p.surface, t.cfg.Allow.Len()))
	}
	return all
}

// collectors are those of /metrics.
func (t *triton) collectors() []prometheus.Collector {
	return append(t.napi.Collectors(), tritonMetrics{t})
}

// tritonMetrics exports which listeners are open, and how many connections they
// refused.
type tritonMetrics struct{ t *triton }

var (
	tritonOpen    = prometheus.NewDesc("rutter_triton_listener_open", "1 for each listener without TLS for Triton's programs.", []string{"surface"}, nil)
	tritonRefused = prometheus.NewDesc("rutter_triton_refused_total", "Requests that the list of addresses or the matrix refused.", []string{"surface"}, nil)
)

// Describe implements prometheus.Collector.
func (tritonMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- tritonOpen; ch <- tritonRefused }

// Collect implements prometheus.Collector.
func (m tritonMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, p := range m.t.ports {
		ch <- prometheus.MustNewConstMetric(tritonOpen, prometheus.GaugeValue, 1, p.surface)
		ch <- prometheus.MustNewConstMetric(tritonRefused, prometheus.CounterValue, float64(p.gate.Count()), p.surface)
	}
}

// where lists the listeners, for the log.
func (t *triton) where() string {
	var all []string
	for _, p := range t.ports {
		all = append(all, p.surface+"="+p.listener.Addr().String())
	}
	return strings.Join(all, ",")
}
