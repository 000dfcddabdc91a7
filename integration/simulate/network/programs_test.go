package network

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// TestHTTP: net/http serves over the network, with and without TLS; a request to a host that is
// down ends with its context, and Shutdown ends the server.
func TestHTTP(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	config := certificate.TLS.Clone()
	certificate.Close()
	for _, scheme := range []string{"http", "https"} {
		synctest.Test(t, func(t *testing.T) {
			n := New(7)
			defer n.Close()
			l, err := n.Host("server").Listen(":80")
			if err != nil {
				t.Fatal(err)
			}
			if scheme == "https" {
				l = tls.NewListener(l, config)
			}
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
				fmt.Fprint(w, " from ", r.RemoteAddr)
			})}
			ended := make(chan error, 1)
			go func() { ended <- server.Serve(l) }()
			transport := &http.Transport{DialContext: n.Host("client").Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			ask := func() (string, error) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				r, _ := http.NewRequestWithContext(ctx, "POST", scheme+"://"+n.Host("server").Address()+":80/", strings.NewReader(strings.Repeat("x", 1<<20)))
				answer, err := transport.RoundTrip(r)
				if err != nil {
					return "", err
				}
				defer answer.Body.Close()
				text, err := io.ReadAll(answer.Body)
				return string(text), err
			}
			if text, err := ask(); err != nil || !strings.Contains(text, "xxx from 10.0.0.2:") || len(text) < 1<<20 {
				t.Errorf("%d bytes, %v", len(text), err)
			}
			n.Set("", "server", Link{Cut: true})
			if _, err := ask(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("cut: %v", err)
			}
			n.Set("", "server", Link{})
			if _, err := ask(); err != nil {
				t.Errorf("after the cut: %v", err)
			}
			transport.CloseIdleConnections()
			if err := server.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
	}
}

// layer is a raft.StreamLayer on a host.
type layer struct {
	net.Listener
	h *Host
}

func (l layer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.h.Dial(ctx, "tcp", string(address))
}

// TestRaft: three servers of hashicorp/raft elect a leader over the network, another one when
// the first is cut off, and all have what was written in the end.
func TestRaft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(7)
		var servers []*raft.Raft
		var transports []*raft.NetworkTransport
		var fsms []*raft.MockFSM
		var members raft.Configuration
		for _, name := range []string{"s1", "s2", "s3"} {
			l, err := n.Host(name).Listen(":7421")
			if err != nil {
				t.Fatal(err)
			}
			members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(name), Address: raft.ServerAddress(l.Addr().String())})
			transports = append(transports, raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: layer{l, n.Host(name)}, MaxPool: 3, Timeout: time.Second, Logger: hclog.NewNullLogger()}))
		}
		for i, member := range members.Servers {
			config := raft.DefaultConfig()
			config.LocalID, config.Logger = member.ID, hclog.NewNullLogger()
			store := raft.NewInmemStore()
			snapshots := raft.NewInmemSnapshotStore()
			if err := raft.BootstrapCluster(config, store, store, snapshots, transports[i], members); err != nil {
				t.Fatal(err)
			}
			fsm := &raft.MockFSM{}
			server, err := raft.NewRaft(config, fsm, store, store, snapshots, transports[i])
			if err != nil {
				t.Fatal(err)
			}
			servers, fsms = append(servers, server), append(fsms, fsm)
		}
		leader := func(besides int) int {
			for range 600 {
				time.Sleep(100 * time.Millisecond)
				for i, s := range servers {
					if i != besides && s.State() == raft.Leader {
						return i
					}
				}
			}
			t.Fatal("no leader in a minute")
			return 0
		}
		first := leader(-1)
		for i := range 20 {
			if err := servers[first].Apply(fmt.Append(nil, i), time.Second).Error(); err != nil {
				t.Fatal(err)
			}
		}
		n.Set(string(members.Servers[first].ID), "", Link{Cut: true})
		second := leader(first)
		if err := servers[second].Apply([]byte("20"), time.Second).Error(); err != nil {
			t.Error(err)
		}
		n.Set(string(members.Servers[first].ID), "", Link{})
		time.Sleep(20 * time.Second)
		for i, fsm := range fsms {
			if got := len(fsm.Logs()); got != 21 {
				t.Errorf("server %d has %d entries of 21", i, got)
			}
		}
		for i, s := range servers {
			if err := s.Shutdown().Error(); err != nil {
				t.Error(err)
			}
			_ = transports[i].Close()
		}
		n.Close()
	})
}
