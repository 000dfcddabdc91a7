package vmm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"rutter/api/reach"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// AskCN is the first byte of this package's requests to other servers; those of package
// liveness have other first bytes.
const AskCN byte = 16

// Routes of requests to a CN, as labels of metrics.
const (
	routeConn  = "connection"
	routePeer  = "peer"
	routeAdmin = "admin"
)

// ask sends a request to a CN: on its connection with this server, through the server
// that has its connection, or at its admin address. The next route is tried only if the
// request was certainly not sent, so nothing is done twice. Errors: ErrUnreachable.
func (s *Service) ask(ctx context.Context, cn log.UUID, r *feed.Request) (*feed.Response, error) {
	var tried []error
	for _, way := range []struct {
		name string
		ask  func(context.Context, log.UUID, *feed.Request) (*feed.Response, error)
	}{{routeConn, s.askHere}, {routePeer, s.askPeer}, {routeAdmin, s.askAdmin}} {
		answer, err := way.ask(ctx, cn, r)
		if err == nil {
			s.metrics.asked.WithLabelValues(way.name).Inc()
			return answer, nil
		}
		tried = append(tried, err)
		if !errors.Is(err, errNotSent) && r.Method != http.MethodGet || ctx.Err() != nil {
			break
		}
	}
	s.metrics.asked.WithLabelValues("none").Inc()
	return nil, fmt.Errorf("%w: %s: %w", ErrUnreachable, cn, errors.Join(tried...))
}

func (s *Service) askHere(ctx context.Context, cn log.UUID, r *feed.Request) (*feed.Response, error) {
	line := s.conn(cn)
	if line == nil {
		return nil, fmt.Errorf("%w: no connection here", errNotSent)
	}
	return line.ask(ctx, r)
}

// askPeer sends the request through the server that has the CN's session.
func (s *Service) askPeer(ctx context.Context, cn log.UUID, r *feed.Request) (*feed.Response, error) {
	if s.cfg.Peers == nil {
		return nil, fmt.Errorf("%w: no other server", errNotSent)
	}
	id, err := s.cfg.Peers.Where(ctx, cn)
	if err != nil {
		return nil, fmt.Errorf("%w: where its session is: %w", errNotSent, err)
	}
	address := s.cfg.Peers.Address(id)
	if id == "" || id == s.cfg.Peers.Self() || address == "" {
		return nil, fmt.Errorf("%w: no other server has its session", errNotSent)
	}
	left := changeTime
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	b := append([]byte{AskCN}, cn[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(max(left.Milliseconds(), 1)))
	if b, err = feed.Append(b, r); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	if b, err = s.cfg.Peers.AskPeer(ctx, address, b); err != nil {
		return nil, fmt.Errorf("%w: through server %s: %w", ErrUnreachable, id, err)
	}
	m, err := messageOf(b)
	if err != nil {
		return nil, fmt.Errorf("%w: through server %s: %w", ErrUnreachable, id, err)
	}
	answer, ok := m.(*feed.Response)
	if !ok || answer.Status == 0 {
		return nil, fmt.Errorf("%w: server %s has no connection of it either", errNotSent, id)
	}
	return answer, nil
}

// AnswerPeer answers askPeer of another server: requests that begin with AskCN. A
// Response of status 0 says that the request was not sent here.
func (s *Service) AnswerPeer(ctx context.Context, b []byte) ([]byte, error) {
	const header = 1 + 16 + 4
	if len(b) < header || b[0] != AskCN {
		return nil, fmt.Errorf("vmm: request of %d bytes: %w", len(b), log.ErrFormat)
	}
	m, err := messageOf(b[header:])
	if err != nil {
		return nil, err
	}
	r, ok := m.(*feed.Request)
	if !ok {
		return nil, fmt.Errorf("vmm: %T for a compute node: %w", m, log.ErrFormat)
	}
	within := time.Duration(binary.BigEndian.Uint32(b[17:])) * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, min(within, changeTime))
	defer cancel()
	answer, err := s.askHere(ctx, log.UUID(b[1:17]), r)
	if errors.Is(err, errNotSent) {
		answer, err = new(feed.Response), nil
	}
	if err != nil {
		return nil, err
	}
	return feed.Append(nil, answer)
}

func messageOf(b []byte) (feed.Message, error) {
	f, err := feed.NewReader(bytes.NewReader(b)).Next()
	if err != nil {
		return nil, err
	}
	return feed.Decode(f)
}

// askAdmin sends the request by HTTP.
func (s *Service) askAdmin(ctx context.Context, cn log.UUID, r *feed.Request) (*feed.Response, error) {
	if s.cfg.HTTP == nil {
		return nil, fmt.Errorf("%w: no admin network is known", errNotSent)
	}
	ip := s.adminIP(cn)
	if !ip.IsValid() {
		return nil, fmt.Errorf("%w: no NIC of it has an address on NIC tag %s", errNotSent, reach.Admin)
	}
	scheme := "http://"
	if s.cfg.AdminTLS {
		scheme = "https://"
	}
	url := scheme + net.JoinHostPort(ip.String(), strconv.Itoa(s.cfg.AdminPort)) + r.Path
	q, err := http.NewRequestWithContext(ctx, r.Method, url, bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	q.Header.Set("Api-Version", r.Version)
	q.Header.Set("Content-Type", "application/json")
	answer, err := s.cfg.HTTP.Do(cn, q)
	if errors.Is(err, reach.ErrRefused) {
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, feed.MaxCall+1))
	if err != nil || len(body) > feed.MaxCall {
		return nil, fmt.Errorf("%w: its answer of %d bytes: %w", ErrUnreachable, len(body), errors.Join(err))
	}
	return &feed.Response{Status: uint16(answer.StatusCode), Body: body}, nil
}

// adminIP is the first address by MAC of the CN's own NICs on the admin tag.
func (s *Service) adminIP(cn log.UUID) (ip netip.Addr) {
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.NICsOf(cn) {
			nic := rec.Object.(*log.NIC)
			tag := nic.NICTag
			if network, ok := state.Get(log.KindNetwork, nic.NetworkUUID.String()); ok {
				tag = network.Object.(*log.Network).NICTag
			}
			if tag == reach.Admin && nic.IP.IsValid() && nic.BelongsToType == "server" {
				ip = nic.IP
				return
			}
		}
	})
	return ip
}

// AskConnected sends a request to the agent of a CN only on its connection, with this
// server or another one. Errors: ErrUnreachable.
func (s *Service) AskConnected(ctx context.Context, cn log.UUID, r *feed.Request) (*feed.Response, error) {
	answer, err := s.askAnywhere(ctx, cn, r)
	// The leader may not have learned yet of a session that has just begun at another
	// server. That it was asked makes it ask the servers.
	for end := time.Now().Add(sessionTime); s.cfg.Peers != nil && errors.Is(err, errNotSent) && time.Now().Before(end); {
		select {
		case <-time.After(sessionTime / 5):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %s: %w", ErrUnreachable, cn, errors.Join(err, ctx.Err()))
		}
		answer, err = s.askAnywhere(ctx, cn, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreachable, cn, err)
	}
	return answer, nil
}

// sessionTime is how long a session of a CN is looked for that no server is known to have.
const sessionTime = time.Second

// askAnywhere asks a CN on its connection with this server, or through the server that has
// one.
func (s *Service) askAnywhere(ctx context.Context, cn log.UUID, r *feed.Request) (*feed.Response, error) {
	answer, err := s.askHere(ctx, cn, r)
	if !errors.Is(err, errNotSent) {
		return answer, err
	}
	other, failed := s.askPeer(ctx, cn, r)
	if failed == nil {
		return other, nil
	}
	if err = errors.Join(err, failed); ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	return nil, err
}
