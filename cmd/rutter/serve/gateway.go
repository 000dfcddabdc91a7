package serve

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"rutter/api"
	"rutter/api/auth/matrix"
	"rutter/api/triton/gateway"
	"rutter/cmd/rutter/storeapi"
)

// gateways are Triton's old services behind the listeners of this server.
type gateways struct {
	metrics *gateway.Metrics
	all     map[string]*gateway.Gateway // by surface
}

// newGateways wraps the tables of surfaces that have an old service behind.
func newGateways(cfg TritonOptions, store storeapi.Store, tables map[string]*api.Surface, logger *slog.Logger) (*gateways, error) {
	gs := &gateways{metrics: gateway.NewMetrics(), all: make(map[string]*gateway.Gateway)}
	peers := peersAdapter{store.Store}
	for surface, url := range cfg.Behind {
		g, err := gateway.New(gateway.Config{
			Surface: surface, Table: tables[surface], Behind: url, Store: storeapi.SurfaceStore{Store: store}, NewID: store.NewID, Self: peers.Self(),
			PlacementBehind: cfg.PlacementBehind, Programs: mayChoosePrograms, Operator: isOperator, Metrics: gs.metrics, Logger: logger,
			Leading: func() bool {
				_, leads := peers.Leading()
				return leads
			},
		})
		if err != nil {
			return nil, err
		}
		gs.all[surface], tables[surface] = g, g.Table()
		logger.Info("what the log does not have is handed on", "gateway", g.String())
	}
	return gs, nil
}

// isOperator reports whether a surface's client may do what only operators may.
func isOperator(r *http.Request) bool {
	who, ok := matrix.From(r.Context())
	return !ok || who.Role == matrix.Operator || who.Role == matrix.Local || who.Role == matrix.Server
}

// run follows the old services until ctx ends.
func (gs *gateways) run(ctx context.Context) error {
	parts := new(errgroup.Group)
	for _, g := range gs.all {
		parts.Go(func() error { return g.Run(ctx) })
	}
	return parts.Wait()
}

// warnings are for /readyz?verbose.
func (gs *gateways) warnings() (all []string) {
	for _, surface := range TritonSurfaces {
		if g := gs.all[surface]; g != nil {
			all = append(all, g.Warnings()...)
		}
	}
	return all
}

func (gs *gateways) collectors() []prometheus.Collector { return gs.metrics.Collectors() }
