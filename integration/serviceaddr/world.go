package serviceaddr

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
)

// Addresses of the network.
var (
	IPv4   = netip.MustParseAddr("10.77.0.9") // the service addresses
	IPv6   = netip.MustParseAddr("fd77::9")
	client = netip.MustParseAddr("10.77.0.100")
)

const (
	servers = 3
	link    = "eth0" // of each host
	bridge  = "br0"
)

// Host is one server's machine.
type Host struct {
	subprocess.Process
	Namespace netlab.Namespace
	IP        netip.Addr
	number    int
}

// World is the network.
type World struct {
	Hosts  [servers]*Host
	Client netlab.Namespace
	lan    netlab.Namespace
	made   []netlab.Namespace
}

// New makes the network, and starts the servers of a program there, with more flags. dir
// is a new folder.
func New(program, dir string, flags ...string) (w *World, err error) {
	w = new(World)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.lan, err = w.namespace(dir, "lan"); err != nil {
		return w, err
	}
	if err = w.lan.Do(func() error { return netlab.AddBridge(bridge) }); err != nil {
		return w, err
	}
	if w.Client, err = w.attach(dir, "client", client, netip.MustParseAddr("fd77::100")); err != nil {
		return w, err
	}
	var peers []string
	for i := range w.Hosts {
		h := &Host{number: i + 1, IP: netip.AddrFrom4([4]byte{10, 77, 0, byte(11 + i)})}
		w.Hosts[i] = h
		id := fmt.Sprintf("s%d", i+1)
		peers = append(peers, fmt.Sprintf("%s=%s:7421", id, h.IP))
		if h.Namespace, err = w.attach(dir, id, h.IP, netip.MustParseAddr(fmt.Sprintf("fd77::%d", 11+i))); err != nil {
			return w, err
		}
	}
	for _, h := range w.Hosts {
		id := fmt.Sprintf("s%d", h.number)
		h.Process = subprocess.Process{
			Name: id, Program: program, LogFile: filepath.Join(dir, id+".log"),
			Args: append([]string{
				"server", "--id", id, "--data", filepath.Join(dir, id+"-data"), "--insecure", "--listen", "0.0.0.0:7420",
				"--raft", h.IP.String() + ":7421", "--peers", strings.Join(peers, ","), "--svp", net.JoinHostPort(IPv4.String(), "1296"),
				"--service-address", IPv4.String() + "/24@" + link, "--service-address", IPv6.String() + "/64@" + link,
				"--napi", net.JoinHostPort(IPv4.String(), "80"), "--cnapi", net.JoinHostPort(IPv6.String(), "80"),
				"--triton-allow", "10.77.0.0/24=write", "--triton-allow", "fd77::/64=write",
			}, flags...),
			Launch: func(cmd *exec.Cmd) error { return h.Namespace.Do(cmd.Start) },
		}
		if err = h.Start(); err != nil {
			return w, err
		}
	}
	return w, nil
}

// namespace makes one that Close deletes.
func (w *World) namespace(dir, name string) (netlab.Namespace, error) {
	ns, err := netlab.Create(dir, name)
	if err == nil {
		w.made = append(w.made, ns)
	}
	return ns, err
}

// attach makes a host on the bridge.
func (w *World) attach(dir, name string, ips ...netip.Addr) (ns netlab.Namespace, err error) {
	if ns, err = w.namespace(dir, name); err != nil {
		return ns, err
	}
	err = w.lan.Do(func() error {
		port := "p" + name
		return errors.Join(netlab.AddVeth(port, link, ns, 1500), netlab.SetMaster(port, bridge), netlab.SetUp(port, true))
	})
	if err != nil {
		return ns, err
	}
	return ns, ns.Do(func() error {
		for _, ip := range ips {
			bits := 24
			if ip.Is6() {
				bits = 64
			}
			if err := netlab.AddAddress(link, netip.PrefixFrom(ip, bits)); err != nil {
				return err
			}
		}
		return netlab.SetUp(link, true)
	})
}

// Close ends the servers and deletes the network.
func (w *World) Close() error {
	var errs []error
	for _, h := range w.Hosts {
		if h != nil && h.Runs() {
			errs = append(errs, h.Signal(syscall.SIGCONT), h.Stop(syscall.SIGTERM))
		}
	}
	for _, ns := range w.made {
		errs = append(errs, ns.Delete())
	}
	return errors.Join(errs...)
}

// Dial connects the client to an address.
func (w *World) Dial(ctx context.Context, address string) (conn net.Conn, err error) {
	err = w.Client.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", address)
		return err
	})
	return conn, err
}

// try bounds one attempt of the client.
const try = 200 * time.Millisecond

// Ask sends one request to NAPI at a service address over a new connection, and returns
// the host that answered by its name in the answer.
func (w *World) Ask(ctx context.Context, ip netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	conn, err := w.Dial(ctx, net.JoinHostPort(ip.String(), "80"))
	if err != nil {
		return err
	}
	defer conn.Close()
	return exchange(conn, ip)
}

// exchange asks for /ping over a connection.
func exchange(conn net.Conn, ip netip.Addr) error {
	if err := conn.SetDeadline(time.Now().Add(try)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET /ping HTTP/1.1\r\nHost: %s\r\n\r\n", net.JoinHostPort(ip.String(), "80")); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", answer.Status)
	}
	return nil
}

// AwaitAnswer asks until a server answers, and returns how long that took. The time of
// the attempt that succeeds counts.
func (w *World) AwaitAnswer(ctx context.Context, ip netip.Addr) (time.Duration, error) {
	began := time.Now()
	for {
		err := w.Ask(ctx, ip)
		if err == nil {
			return time.Since(began), nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("no server answers at %s: %w", ip, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Get asks a server's own API, and returns the body.
func (h *Host) Get(ctx context.Context, path string) (string, error) {
	return h.ask(ctx, http.MethodGet, path, "")
}

// Post sends JSON to a server's own API, and returns the answer's body.
func (h *Host) Post(ctx context.Context, path, body string) (string, error) {
	return h.ask(ctx, http.MethodPost, path, body)
}

func (h *Host) ask(ctx context.Context, method, path, body string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = h.Namespace.Do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:7420"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var text strings.Builder
	_, err = bufio.NewReader(answer.Body).WriteTo(&text)
	return text.String(), err
}

// Blind kills the holder of the address, by SIGKILL, and returns how long a client that
// dials only the address gets no answer. The server that was killed is started again, and
// answers with the others when Blind returns.
func (w *World) Blind(ctx context.Context, watch *Watch) (time.Duration, error) {
	holder, err := watch.AwaitHolder(ctx, IPv4)
	if err != nil {
		return 0, err
	}
	if _, err := w.AwaitAnswer(ctx, IPv4); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := holder.Stop(syscall.SIGKILL); err != nil {
		return 0, err
	}
	if _, err := w.AwaitAnswer(ctx, IPv4); err != nil {
		return 0, err
	}
	blind := time.Since(began)
	if err := holder.Start(); err != nil {
		return 0, err
	}
	return blind, holder.AwaitReady(ctx)
}

// AwaitReady waits until the server serves.
func (h *Host) AwaitReady(ctx context.Context) error {
	for {
		text, err := h.Get(ctx, "/readyz")
		if err == nil && strings.HasPrefix(text, "ok") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%q, %w); it said last:\n%s", h.Name, text, err, h.Tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Run runs a program on a host's machine.
func (h *Host) Run(name string, args ...string) error {
	return h.Namespace.Do(func() error {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return nil
	})
}

// MAC returns the Ethernet address of a host's link.
func (h *Host) MAC() (mac net.HardwareAddr, err error) {
	err = h.Namespace.Do(func() error {
		ifi, err := net.InterfaceByName(link)
		if err == nil {
			mac = ifi.HardwareAddr
		}
		return err
	})
	return mac, err
}

// CutOff makes a host drop all frames of the other servers, until the returned function is
// called. The client still reaches the host.
func (w *World) CutOff(h *Host) (heal func() error, err error) {
	err = errors.Join(
		h.Run("nft", "add", "table", "netdev", "cut"),
		h.Run("nft", "add", "chain", "netdev", "cut", "in", "{ type filter hook ingress device "+link+" priority 0; }"),
	)
	for _, other := range w.Hosts {
		if other == h || err != nil {
			continue
		}
		mac, failed := other.MAC()
		if err = failed; err == nil {
			err = h.Run("nft", "add", "rule", "netdev", "cut", "in", "ether", "saddr", mac.String(), "drop")
		}
	}
	return func() error { return h.Run("nft", "delete", "table", "netdev", "cut") }, err
}
