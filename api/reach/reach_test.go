package reach

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"rutter/log"
	"rutter/projections"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var cn, other = log.UUID{1}, log.UUID{2}

// world is a log with the network admin and others.
func world(t *testing.T) func(func(*projections.State, log.Cursor)) {
	t.Helper()
	s := projections.NewState()
	seq := log.Seq(0)
	network := func(n byte, name, tag, subnet string, fabric bool) *log.Network {
		return &log.Network{UUID: log.UUID{9, n}, Name: name, NICTag: tag, Subnet: netip.MustParsePrefix(subnet), Fabric: fabric, VNetID: uint32(n)}
	}
	admin := network(1, "admin", "admin", "10.99.99.0/24", false)
	admin.Gateway, admin.Resolvers = netip.MustParseAddr("10.99.99.1"), log.Addresses{netip.MustParseAddr("10.99.99.2")}
	nic := func(n byte, of log.UUID, ip string) *log.NIC {
		return &log.NIC{MAC: log.MAC{2, 5: n}, BelongsToType: "server", BelongsToUUID: of, CNUUID: of, NetworkUUID: admin.UUID, IP: netip.MustParseAddr(ip)}
	}
	for _, o := range []log.Object{
		admin, network(2, "rack2", "admin", "10.99.98.0/24", false), network(3, "external", "external", "203.0.113.0/24", false),
		network(4, "admin", "overlay", "10.1.0.0/24", true), network(5, "admin", "strange", "169.254.0.0/16", false),
		nic(1, cn, "10.99.99.7"), nic(2, other, "10.99.99.8"),
		&log.IP{NetworkUUID: admin.UUID, IP: netip.MustParseAddr("10.99.99.9"), Reserved: true},
	} {
		seq++
		if err := s.Load(projections.Record{Object: o, Revision: 1, Seq: seq}); err != nil {
			t.Fatal(err)
		}
	}
	return func(fn func(*projections.State, log.Cursor)) { fn(s, log.Cursor{}) }
}

func TestWhereRequestsGo(t *testing.T) {
	server := netip.MustParseAddr("10.99.99.20")
	for _, test := range []struct {
		networks, address, why string // why: "" if requests go there
	}{
		{"", "10.99.99.7", ""},
		{"", "10.99.99.77", ""}, // a node whose NIC is not in the log yet
		{"", "10.99.98.7", ""},
		{"", "::ffff:10.99.99.7", ""},
		{"", "10.99.99.8", "belongs to server"},
		{"", "10.99.99.1", "gateway"},
		{"", "10.99.99.2", "resolver"},
		{"", "10.99.99.9", "reserved"},
		{"", "10.99.99.20", "server"},
		{"10.99.99.0/24", "10.99.99.20", "server"},
		{"10.99.99.20/32", "10.99.99.20", ""},
		{"10.99.99.8/32", "10.99.99.8", "belongs to server"},
		{"", "203.0.113.7", "no network that an operator named"},
		{"", "10.1.0.7", "no network that an operator named"}, // a fabric, whatever its name
		{"", "192.0.2.1", "no network that an operator named"},
		{"192.0.2.0/24", "192.0.2.1", ""},
		{"", "169.254.169.254", "link-local"}, // though a network named admin has it
		{"0.0.0.0/0", "169.254.169.254", "link-local"},
		{"169.254.0.0/16", "169.254.169.254", ""},
		{"", "fe80::1", "link-local"},
		{"", "fe80::1%eth0", "no address of a node"},
		{"", "127.0.0.1", "loopback"},
		{"0.0.0.0/0", "127.0.0.1", "loopback"},
		{"::/0", "::1", "loopback"},
		{"127.0.0.0/8", "127.0.0.1", ""},
		{"0.0.0.0/0", "0.0.0.0", "no address of a node"},
		{"0.0.0.0/0", "224.0.0.1", "no address of a node"},
		{"", "fd00:ec2::254", "no network that an operator named"},
	} {
		var networks []netip.Prefix
		if test.networks != "" {
			networks = append(networks, netip.MustParsePrefix(test.networks))
		}
		g := New(Config{View: world(t), Networks: networks, Servers: func() []netip.Addr { return []netip.Addr{server} }})
		if why := g.Refuses(cn, netip.MustParseAddr(test.address)); (why == "") != (test.why == "") || !strings.Contains(why, test.why) {
			t.Errorf("%s with --cn-network %q: %q, want %q", test.address, test.networks, why, test.why)
		}
	}
	if why := New(Config{View: world(t)}).Refuses(cn, netip.Addr{}); why == "" {
		t.Error("no address was taken")
	}
}

// listener is a real HTTP server that counts the connections made to it.
func listener(t *testing.T, address string, answer http.HandlerFunc) (at string, connections *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	connections = new(atomic.Int32)
	s := &http.Server{Handler: answer, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return l.Addr().String(), connections
}

// Requests go to what an operator named, and nowhere else: not by name, redirect or proxy.
func TestNothingElseIsDialled(t *testing.T) {
	secret, dialled := listener(t, "127.0.0.2", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret") })
	honest, asked := listener(t, "127.0.0.1", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+secret+"/", http.StatusTemporaryRedirect)
	})
	t.Setenv("HTTP_PROXY", "http://"+secret)
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	client := New(Config{View: world(t), Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}).Client(transport)
	defer client.CloseIdleConnections()
	send := func(url string) (status int, err error) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(cn, r)
		if err != nil {
			return 0, err
		}
		defer answer.Body.Close()
		return answer.StatusCode, nil
	}
	if status, err := send("http://" + honest + "/tasks"); err != nil || status != http.StatusTemporaryRedirect || asked.Load() != 1 {
		t.Errorf("the honest node: %d %v, %d connections", status, err, asked.Load())
	}
	_, port, _ := net.SplitHostPort(secret)
	for _, url := range []string{"http://" + secret + "/tasks", fmt.Sprintf("http://localhost:%s/tasks", port), "http://[::ffff:127.0.0.2]:" + port + "/tasks"} {
		if _, err := send(url); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", url, err)
		}
	}
	if dialled.Load() != 0 {
		t.Errorf("%d connections to an address that nothing named", dialled.Load())
	}
}
