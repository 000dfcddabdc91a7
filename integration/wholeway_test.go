package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rutter/agent"
	"rutter/api/client"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
	"rutter/log"
)

// wholeWayWriters is the number of clients that write at once.
const wholeWayWriters = 64

// BenchmarkWholeWay measures events through the whole way: 64 clients create
// NICs over HTTP, three server processes agree on them, an agent process puts
// the neighbour and the forwarding entry of each into a real kernel. One
// operation is one NIC; acked/s is until the last acknowledgement, kernel/s
// until a dump of the kernel matched the log's end.
func BenchmarkWholeWay(b *testing.B) {
	if !netlab.Inside() {
		cmd := netlab.Enter("-test.run=^$", "-test.bench=^BenchmarkWholeWay$", "-test.benchtime="+benchTime())
		err := cmd.Run()
		if netlab.Forbidden(err) {
			b.Skip(netlab.ErrForbidden)
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Skip("the figures above are those of the same benchmark in namespaces of its own")
	}
	if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
		b.Fatal(err)
	}
	w := newWholeWay(b)
	for round := 0; b.Loop(); round++ {
		w.round(b, round)
	}
}

// benchTime runs one round, of wholeWayNICs.
func benchTime() string { return "1x" }

// wholeWayNICs is how many NICs are created in one round.
const wholeWayNICs = 20000

type wholeWay struct {
	c       *cluster
	network log.UUID
	owner   log.UUID
	local   log.UUID // the CN of the agent
	remote  log.UUID // the CN that the NICs are on
	vm      log.UUID
	status  string // the agent's
	netns   string // the folder of the agent's VM namespaces
}

// newWholeWay starts three servers and the agent of one of two compute nodes,
// with more flags.
func newWholeWay(b testing.TB, flags ...string) *wholeWay {
	w := newWholeWayLog(b)
	w.startAgent(b, w.local, flags...)
	return w
}

// newWholeWayLog starts three servers, whose log has two compute nodes without an agent.
func newWholeWayLog(b testing.TB) *wholeWay {
	w := &wholeWay{c: startCluster(b), owner: client.NewChangeID(), network: client.NewChangeID(), remote: client.NewChangeID(), vm: client.NewChangeID()}
	local, localVM := client.NewChangeID(), client.NewChangeID()
	if err := errors.Join(netlab.AddBridge("underlay"), netlab.AddAddress("underlay", netip.MustParsePrefix("192.0.2.1/24"))); err != nil {
		b.Fatal(err)
	}
	create := func(set string, o log.Object) log.Op {
		return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
	}
	underlay := client.NewChangeID()
	ops := []log.Op{
		create("mtu name", &log.NICTag{Name: "u", MTU: 1600}),
		create("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid", &log.Network{UUID: underlay, Name: "u", NICTag: "u", MTU: 1600, Subnet: netip.MustParsePrefix("192.0.2.0/24"), ProvisionStart: netip.MustParseAddr("192.0.2.1"), ProvisionEnd: netip.MustParseAddr("192.0.2.250")}),
		create("fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet uuid vnet_id", &log.Network{UUID: w.network, Name: "f", NICTag: "u", Fabric: true, VNetID: 7, MTU: 1400, OwnerUUIDs: []log.UUID{w.owner}, Subnet: netip.MustParsePrefix("10.0.0.0/8"), ProvisionStart: netip.MustParseAddr("10.0.0.5"), ProvisionEnd: netip.MustParseAddr("10.255.0.0")}),
	}
	for i, cn := range []log.UUID{local, w.remote} {
		ops = append(ops,
			create("hostname uuid", &log.Server{UUID: cn, Hostname: fmt.Sprintf("cn%d", i)}),
			create("belongs_to_type belongs_to_uuid cn_uuid ip network_uuid owner_uuid underlay", &log.NIC{BelongsToType: "server", BelongsToUUID: cn, CNUUID: cn, OwnerUUID: w.owner, NetworkUUID: underlay, Underlay: true, IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})}),
			create("owner_uuid server_uuid uuid", &log.VM{UUID: []log.UUID{localVM, w.vm}[i], OwnerUUID: w.owner, ServerUUID: cn}))
	}
	ops = append(ops, w.nic(local, localVM))
	if _, err := w.c.Client.Submit(b.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
		b.Fatal(err)
	}
	w.local = local
	return w
}

func (w *wholeWay) nic(cn, vm log.UUID) log.Op {
	return log.Op{
		Action: log.Create, Kind: log.KindNIC, Set: strings.Fields("belongs_to_type belongs_to_uuid cn_uuid network_uuid owner_uuid"),
		Object: &log.NIC{BelongsToType: "zone", BelongsToUUID: vm, CNUUID: cn, OwnerUUID: w.owner, NetworkUUID: w.network},
	}
}

// startAgent starts the agent of a CN. Its VM's namespace does not exist, so
// its VM is made one without: the zonename of a VM is its uuid.
func (w *wholeWay) startAgent(b testing.TB, cn log.UUID, flags ...string) {
	dir := w.zones(b, cn)
	w.status = fmt.Sprintf("127.0.0.1:%d", rig.Ports(b, 1)[0])
	rig.Start(b, &subprocess.Process{Name: "agent", Program: program, LogFile: filepath.Join(dir, "agent.log"), Args: append([]string{
		"agent", "--cn", cn.String(), "--data", filepath.Join(dir, "agent"), "--svp", "off",
		"--listen", w.status, "--servers", strings.Join(w.c.Client.Servers(), ","), "--netns", dir, "--etc-netns", filepath.Join(dir, "etc"),
	}, flags...)})
}

// zones makes the namespaces of a CN's VMs, and returns their folder.
func (w *wholeWay) zones(b testing.TB, cn log.UUID) string {
	dir := b.TempDir()
	w.netns = dir
	vms, err := w.c.Client.List(b.Context(), "/vms", map[string][]string{"server_uuid": {cn.String()}})
	if err != nil {
		b.Fatal(err)
	}
	for _, vm := range vms {
		zone, err := netlab.Create(dir, vm["zonename"].(string))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := zone.Delete(); err != nil {
				b.Error(err)
			}
		})
	}
	return dir
}

// programmed asks the agent up to where its kernel matches.
func (w *wholeWay) programmed() log.Seq {
	response, err := http.Get("http://" + w.status + "/status")
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	var s agent.Status
	if json.NewDecoder(response.Body).Decode(&s) != nil {
		return 0
	}
	return s.Programmed
}

func (w *wholeWay) round(b *testing.B, round int) {
	var next atomic.Int64
	var last atomic.Uint64
	var writers sync.WaitGroup
	began := time.Now()
	for range wholeWayWriters {
		writers.Go(func() {
			for next.Add(1) <= wholeWayNICs {
				result, err := w.c.Client.Submit(b.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{w.nic(w.remote, w.vm)}})
				if err != nil {
					b.Error(err)
					return
				}
				for old := last.Load(); uint64(result.Last) > old && !last.CompareAndSwap(old, uint64(result.Last)); old = last.Load() {
				}
			}
		})
	}
	writers.Wait()
	acked := time.Since(began)
	for end := time.Now().Add(2 * time.Minute); w.programmed() < log.Seq(last.Load()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("the kernel does not match seq %d", last.Load())
		}
	}
	b.ReportMetric(wholeWayNICs/acked.Seconds(), "acked/s")
	b.ReportMetric(wholeWayNICs/time.Since(began).Seconds(), "kernel/s")
	b.Logf("round %d: %d NICs", round, wholeWayNICs)
}
