package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"rutter/api/liveness"
	"rutter/api/vmm"
	"rutter/cmd/rutter/storeapi"
	"rutter/log"
)

// newVMMService returns what keeps the log's VMMs and VMs what the compute nodes
// say that they are, and has the store answer the other servers' questions with
// it and with fabric.
func newVMMService(store storeapi.Store, fabric *liveness.Fabric, cnPort int, secure *serverTLS, logger *slog.Logger) (*vmm.Service, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 1, MaxConnsPerHost: 4}
	if secure != nil {
		// A connection is to one node: it is not used for the next one at its address.
		transport.DisableKeepAlives = true
		transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			cn, _ := vmm.AdminCN(ctx)
			return secure.dialCN(ctx, network, address, cn)
		}
	}
	service, err := vmm.New(vmm.Config{
		Store: store, Peers: vmmPeers{peersAdapter(store), fabric}, Logger: logger, AdminPort: cnPort, AdminTLS: secure != nil, Bound: secure != nil,
		NewID: store.NewID,
		HTTP: &http.Client{
			Transport: transport,
			// A compute node that sends elsewhere is not the one that was asked.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	if err != nil {
		return nil, err
	}
	store.AnswerWith(func(ctx context.Context, request []byte) ([]byte, error) {
		if len(request) > 0 && request[0] == vmm.AskCN {
			return service.AnswerPeer(ctx, request)
		}
		return fabric.Answer(ctx, request)
	})
	return service, nil
}

// vmmPeers shows the cluster as package vmm wants it.
type vmmPeers struct {
	peersAdapter
	fabric *liveness.Fabric
}

// Address implements vmm.Peers.
func (p vmmPeers) Address(id string) string {
	for _, m := range p.Members() {
		if m.ID == id {
			return m.Address
		}
	}
	return ""
}

// Leading implements vmm.Peers.
func (p vmmPeers) Leading() bool {
	_, leads := p.peersAdapter.Leading()
	return leads
}

// Where implements vmm.Peers.
func (p vmmPeers) Where(ctx context.Context, cn log.UUID) (string, error) {
	return p.fabric.Where(ctx, cn)
}

// AskPeer implements vmm.Peers.
func (p vmmPeers) AskPeer(ctx context.Context, address string, request []byte) ([]byte, error) {
	return p.Store.Ask(ctx, address, request)
}
