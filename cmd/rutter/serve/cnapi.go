package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"rutter/api"
	"rutter/api/auth/matrix"
	"rutter/api/liveness"
	"rutter/api/reach"
	"rutter/api/triton/cnapi"
	"rutter/cmd/rutter/storeapi"
	"rutter/log"
	"rutter/log/budget"
)

// newCNAPI returns the handler of CNAPI, with the heartbeats of fabric.
func newCNAPI(store storeapi.Store, fabric *liveness.Fabric, gate *reach.Gate, budgets budget.Set, version string, logger *slog.Logger) (*cnapi.Service, error) {
	peers := peersAdapter{store.Store}
	return cnapi.New(cnapi.Config{
		Store: storeapi.SurfaceStore{Store: store}, Logger: logger, Self: peers.Self(), Asker: asker, Programs: mayChoosePrograms,
		NewID: store.NewID, Now: store.LogNow, // deadlines use the log's time
		Beat: func(cn log.UUID, announces bool) {
			holds := liveness.BeatHolds
			if announces {
				holds = liveness.AnnounceHolds
			}
			fabric.Beat(cn, holds) // if it is dropped, the node sends another in 5 s
		},
		LastSigns: func(ctx context.Context) ([]cnapi.LastSign, error) {
			known, err := fabric.List(ctx)
			list := make([]cnapi.LastSign, 0, len(known))
			for i := range known {
				k := &known[i]
				list = append(list, cnapi.LastSign{CN: k.CN, Ago: time.Duration(k.HeardMS) * time.Millisecond, Server: k.Server})
			}
			return list, err
		},
		Leading: func() bool {
			_, leads := peers.Leading()
			return leads
		},
		HTTP: gate.Client(nil), Budgets: budgets, Version: version,
	})
}

// mayChoosePrograms reports whether a surface's client may choose what runs on compute
// nodes: an operator, or a program without a certificate whose address --triton-allow
// gives that right. The agents decide again.
func mayChoosePrograms(r *http.Request) bool {
	who, ok := matrix.From(r.Context())
	return !ok || who.Programs || who.Role == matrix.Operator || who.Role == matrix.Local || who.Role == matrix.Server
}

// asker returns the identity of a surface's client: that of the connection or its gate,
// or an anonymous one on a listener without authentication.
func asker(r *http.Request) (actor string, by log.Author) {
	if who, ok := matrix.From(r.Context()); ok {
		return who.Actor(), who.Author()
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "anonymous@" + host, log.Author{}
}

// cnapiMounts are the paths of CNAPI in the API.
func cnapiMounts(table *api.Surface) []api.Mount {
	return []api.Mount{{Path: "/cnapi", Table: table, Strip: true}, {Path: "/tasks", Table: table}}
}
