package tls

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/netlab"
	"rutter/integration/rig"
	"rutter/varp"
)

// A server with TLS and SVP on an address that others reach, and hosts around it in
// network namespaces: who is closed out, and who hears of which vnets, is as the log
// has it, without a restart.
func TestSVPOfKnownNodes(t *testing.T) {
	if !netlab.Inside() {
		cmd := netlab.Enter("-test.run=^TestSVPOfKnownNodes$", "-test.v="+fmt.Sprint(testing.Verbose()))
		err := cmd.Run()
		if netlab.Forbidden(err) {
			t.Skip(netlab.ErrForbidden)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
		t.Fatal(err)
	}
	w := newSVPWorld(t)
	one, two, admin := w.host("one", "10.9.0.11/24"), w.host("two", "10.9.0.12/24"), w.host("admin", "10.8.0.11/24")
	three, vm, stranger := w.host("three", "10.9.0.13/24"), w.host("vm", "10.9.0.66/24"), w.host("stranger", "10.9.0.99/24")
	w.node(1, "10.9.0.11")
	w.node(2, "10.9.0.12")
	w.nic("belongs_to_type", "server", "belongs_to_uuid", svpNode(1), "cn_uuid", svpNode(1), "network_uuid", svpNet("admin"), "ip", "10.8.0.11")
	w.vnic(1, 7, "10.50.0.11")
	w.vnic(2, 8, "10.51.0.12")
	// A VM's NIC on the underlay's network makes no node of it.
	w.nic("belongs_to_type", "zone", "belongs_to_uuid", svpVM(1), "cn_uuid", svpNode(1), "network_uuid", svpNet("underlay"), "ip", "10.9.0.66")

	two.await(8, "10.51.0.12", true) // the last that was made: the others are there
	two.await(7, "10.50.0.11", false)
	for _, h := range []*svpHost{one, admin} {
		h.await(7, "10.50.0.11", true)
		h.await(8, "10.51.0.12", false)
	}
	if _, err := two.client.LogRequest(t.Context(), netip.MustParseAddr("10.9.0.11"), 1024); err == nil {
		t.Error("a node is given the log of another")
	}
	for _, h := range []*svpHost{three, vm, stranger} {
		if err := h.hungUp(); err != nil {
			t.Errorf("%s: %v", h.name, err)
		}
	}

	mac := w.vnic(1, 8, "10.51.0.11")
	one.await(8, "10.51.0.12", true)
	w.must(w.api.Delete(t.Context(), "/nics/"+mac, ""))
	one.await(8, "10.51.0.12", false)
	one.await(7, "10.50.0.11", true)

	w.node(3, "10.9.0.13")
	w.vnic(3, 7, "10.50.0.13")
	three.await(7, "10.50.0.11", true)
	three.await(8, "10.51.0.12", false)
	if err := stranger.hungUp(); err != nil {
		t.Errorf("the stranger, in the end: %v", err)
	}
	text := w.get("ada", "/readyz?verbose")
	if !strings.Contains(text, "--svp") {
		t.Errorf("nothing says that the port of SVP is open: %s", text)
	}
}

// svpPort is where the server's SVP is, on each of its addresses.
const svpPort = "1296"

// svpWorld is one server on a bridge.
type svpWorld struct {
	*world
	dir  string // of namespaces
	macs int
}

func newSVPWorld(t *testing.T) *svpWorld {
	w := &world{t: t, folder: t.TempDir(), raft: []string{rig.Address(t)}, urls: []string{"https://" + rig.Address(t)}}
	w.office = tlsgate.Issuer{Folder: w.path("pki")}
	w.must(w.office.Init(pki.AuthorityLife))
	w.must(errors.Join(netlab.AddBridge("hosts"), netlab.AddAddress("hosts", netip.MustParsePrefix("10.9.0.1/24")), netlab.AddAddress("hosts", netip.MustParsePrefix("10.8.0.1/24"))))
	w.issue("s1", matrix.Identity{Role: matrix.Server, Name: "s1"}, life)
	w.issue("ada", matrix.Identity{Role: matrix.Operator, Name: "ada"}, pki.Life)
	w.start("s1", 0, "--bootstrap", "--svp", "0.0.0.0:"+svpPort)
	w.api = w.client("ada", w.urls...)
	s := &svpWorld{world: w, dir: t.TempDir()}
	for _, tag := range []string{"admin", "under", "overlay"} {
		s.create("/nic_tags", "name", tag)
	}
	s.create("/networks", "uuid", svpNet("admin"), "name", "admin", "nic_tag", "admin", "subnet", "10.8.0.0/24", "provision_start_ip", "10.8.0.5", "provision_end_ip", "10.8.0.250")
	s.create("/networks", "uuid", svpNet("underlay"), "name", "underlay", "nic_tag", "under", "subnet", "10.9.0.0/24", "provision_start_ip", "10.9.0.5", "provision_end_ip", "10.9.0.250")
	for vnet, prefix := range map[int]string{7: "10.50.0.", 8: "10.51.0."} {
		_, err := w.api.Create(t.Context(), "/networks", fmt.Appendf(nil,
			`{"uuid": %q, "name": "fabric%d", "nic_tag": "overlay", "fabric": true, "vnet_id": %[2]d, "vlan_id": 0, "subnet": "%[3]s0/24", "provision_start_ip": "%[3]s5", "provision_end_ip": "%[3]s250", "owner_uuids": [%[4]q]}`,
			svpNet(fmt.Sprint(vnet)), vnet, prefix, ourOwner))
		w.must(err)
	}
	return s
}

// Names of the objects here.
func svpNode(n int) string { return fmt.Sprintf("564d69b1-a178-4fbe-b36f-3f2b7fd7ee%02d", n) }
func svpVM(n int) string   { return fmt.Sprintf("5595d88c-6e4d-4bda-b58e-97dd02e4%04d", n) }

// svpNet is the id of a network: admin, underlay, or that of a vnet.
func svpNet(name string) string {
	return "0e70de36-a40b-4ac0-9429-0000000000" + map[string]string{"admin": "0a", "underlay": "0b", "7": "07", "8": "08"}[name]
}

// create makes an object of texts.
func (w *svpWorld) create(path string, fields ...string) {
	w.t.Helper()
	body := make([]string, 0, len(fields)/2)
	for i := 0; i < len(fields); i += 2 {
		value := fmt.Sprintf("%q", fields[i+1])
		if fields[i+1] == "true" {
			value = "true"
		}
		body = append(body, fmt.Sprintf("%q: %s", fields[i], value))
	}
	_, err := w.api.Raw(w.t.Context(), http.MethodPost, path, []byte("{"+strings.Join(body, ", ")+"}"))
	w.must(err)
}

// nic makes a NIC and returns its MAC.
func (w *svpWorld) nic(fields ...string) string {
	w.t.Helper()
	w.macs++
	mac := fmt.Sprintf("90:b8:d0:99:00:%02x", w.macs)
	w.create("/nics", append([]string{"mac", mac, "owner_uuid", ourOwner}, fields...)...)
	return mac
}

// node makes a compute node with a VM and an address on the underlay.
func (w *svpWorld) node(n int, underlay string) {
	w.t.Helper()
	w.create("/servers", "uuid", svpNode(n), "hostname", fmt.Sprintf("cn%d", n))
	w.create("/vms", "uuid", svpVM(n), "owner_uuid", ourOwner, "brand", "lx", "server_uuid", svpNode(n))
	w.nic("belongs_to_type", "server", "belongs_to_uuid", svpNode(n), "cn_uuid", svpNode(n), "network_uuid", svpNet("underlay"), "ip", underlay, "underlay", "true")
}

// vnic gives a node's VM a NIC on a vnet.
func (w *svpWorld) vnic(n, vnet int, ip string) string {
	w.t.Helper()
	return w.nic("belongs_to_type", "zone", "belongs_to_uuid", svpVM(n), "cn_uuid", svpNode(n), "network_uuid", svpNet(fmt.Sprint(vnet)), "ip", ip)
}

// svpHost is a machine at the bridge that asks SVP.
type svpHost struct {
	t      *testing.T
	name   string
	space  netlab.Namespace
	server string
	client *varp.Client
}

// host makes one with an address.
func (w *svpWorld) host(name, address string) *svpHost {
	w.t.Helper()
	prefix := netip.MustParsePrefix(address)
	space, err := netlab.Create(w.dir, name)
	w.must(err)
	w.t.Cleanup(func() { _ = space.Delete() })
	w.must(errors.Join(
		netlab.AddVeth(name+"0", "eth0", space, 1500), netlab.SetMaster(name+"0", "hosts"), netlab.SetUp(name+"0", true),
		space.Do(func() error { return errors.Join(netlab.SetUp("eth0", true), netlab.AddAddress("eth0", prefix)) }),
	))
	h := &svpHost{t: w.t, name: name, space: space, server: net.JoinHostPort(prefix.Masked().Addr().Next().String(), svpPort)}
	h.client, err = varp.NewClient(varp.ClientConfig{Servers: []string{h.server}, Dial: h.dial})
	w.must(err)
	w.t.Cleanup(func() { _ = h.client.Close() })
	return h
}

func (h *svpHost) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = h.space.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// await asks until an address of a vnet is found, or is not there, as the server
// answers what the log says.
func (h *svpHost) await(vnet uint32, ip string, found bool) {
	h.t.Helper()
	for deadline := time.Now().Add(finishPatience); ; time.Sleep(50 * time.Millisecond) {
		_, _, err := h.client.VL3(h.t.Context(), vnet, netip.MustParseAddr(ip))
		if found && err == nil || !found && errors.Is(err, varp.ErrNotFound) {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s asks for %s on vnet %d: %v, want it found: %t", h.name, ip, vnet, err, found)
		}
	}
}

// hungUp is nil if the server hangs up without an answer.
func (h *svpHost) hungUp() error {
	conn, err := h.dial(h.t.Context(), "tcp", h.server)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, _ = conn.Write(varp.VL3Req{VNet: 7, IP: netip.MustParseAddr("10.50.0.11")}.Append(nil, 1)) // it may be gone already
	if err := conn.SetReadDeadline(time.Now().Add(finishPatience)); err != nil {
		return err
	}
	n, err := conn.Read(make([]byte, 64))
	if n > 0 {
		return fmt.Errorf("%d bytes of an answer, want none", n)
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return errors.New("the connection stays, want it closed")
	}
	return nil
}
