package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"rutter/api/liveness"
	"rutter/api/reach"
	"rutter/api/vmm"
	"rutter/cmd/rutter/storeapi"
	"rutter/log"
)

// newVMMService returns the service that copies the VMMs and VMs of compute nodes to
// the log. It also registers it and fabric in the store, to answer the other servers'
// requests; answers has further ones, by the first byte of a request.
func newVMMService(store storeapi.Store, fabric *liveness.Fabric, cnPort int, gate *reach.Gate, secure *serverTLS, answers map[byte]func(question []byte) ([]byte, error), logger *slog.Logger) (*vmm.Service, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 1, MaxConnsPerHost: 4}
	if secure != nil {
		// Connections are not reused, because the next request to an address may be for
		// another node.
		transport.DisableKeepAlives = true
		transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			cn, _ := reach.CN(ctx)
			return secure.dialCN(ctx, network, address, cn)
		}
	}
	service, err := vmm.New(vmm.Config{
		Store: store, Peers: vmmPeers{peersAdapter{store.Store}, fabric}, Logger: logger, AdminPort: cnPort, AdminTLS: secure != nil, Bound: secure != nil,
		NewID: store.NewID,
		HTTP:  gate.Client(transport),
	})
	if err != nil {
		return nil, err
	}
	store.AnswerWith(func(ctx context.Context, request []byte) ([]byte, error) {
		if len(request) > 0 && request[0] == vmm.AskCN {
			return service.AnswerPeer(ctx, request)
		}
		if len(request) > 0 && request[0] == askAuthorities {
			return secure.answerAuthorities()
		}
		if len(request) > 0 && answers[request[0]] != nil {
			return answers[request[0]](request[1:])
		}
		return fabric.Answer(ctx, request)
	})
	return service, nil
}

// vmmPeers adapts the store to vmm.Peers.
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
