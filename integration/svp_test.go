package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
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
	"rutter/integration/svpclient"
	"rutter/log"
	"rutter/projections"
)

const (
	svpChanges = 10_000
	// svpFor is how long changes are made unless RUTTER_LONG is set: as many as
	// there is time for.
	svpFor     = 8 * time.Second
	svpWriters = 8
	// svpNICs are those of each writer, and svpNets the fabric networks.
	svpNICs = 6
	svpNets = 3
	svpCNs  = 4
)

// TestOldClientsOfRealProcesses: three servers and an agent as processes, changes
// at random, and clients that do what illumos varpd and linux-cn-varpd do, at the
// agent and at the servers. Servers are killed and come back, and so, once, is
// the agent. In the end no client met a message that it could not handle, and no
// client has a wrong mapping.
func TestOldClientsOfRealProcesses(t *testing.T) {
	t.Parallel()
	if !enterLab(t) {
		return
	}
	w := newSVPWay(t)
	moving, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	// Their first connection is made before the first kill: an illumos whose SVP
	// server does not answer at its start gives up.
	atAgent := newOldIllumos(t, w.underlay(0), []string{w.svp}, 1)
	atServers, linux := newOldIllumos(t, w.underlay(1), w.servers, 2), &oldLinux{}
	clients.Go(func() { atAgent.run(t, moving) })
	clients.Go(func() { atServers.run(t, moving) })
	clients.Go(func() { linux.run(t, moving, w.svp) })
	w.move(t)
	w.settle(t)
	stop()
	clients.Wait()
	if t.Failed() {
		return
	}
	truth := w.truth(t)
	truth.check(t, "illumos at the agent", atAgent.ARP, atAgent.Where)
	truth.check(t, "illumos at the servers", atServers.ARP, atServers.Where)
	for host, n := range linux.Neighs {
		if mac := truth.arp[host]; mac != n.MAC || truth.where[svpclient.Port{VNet: host.VNet, MAC: mac}] != n.At {
			t.Errorf("linux-cn-varpd: %v is %s, it has %v", host, mac, n)
		}
	}
	// One when the agent was killed, one more if it was reached again in its last moment.
	if atAgent.Lost > 2 {
		t.Errorf("the agent ended %d connections of illumos, want 1 or 2, when it was killed", atAgent.Lost)
	}
	t.Logf("%d changes, %d kills; requests: %d and %d of illumos, %d of linux-cn-varpd; connections lost: %d and %d of illumos, %d of linux-cn-varpd",
		w.made.Load(), w.kills, atAgent.Asked, atServers.Asked, linux.asked, atAgent.Lost, atServers.Lost, linux.lost)
}

// oldIllumos is an illumos that goes on after its servers were away.
type oldIllumos struct {
	*svpclient.Illumos
	seed uint64
}

func newOldIllumos(t *testing.T, me netip.Addr, servers []string, seed uint64) *oldIllumos {
	t.Helper()
	c, err := svpclient.NewIllumos(me, servers, 2*time.Millisecond, seed)
	if err != nil {
		t.Fatal(err)
	}
	return &oldIllumos{c, seed}
}

func (o *oldIllumos) run(t *testing.T, moving context.Context) {
	defer o.Close()
	dice := rand.New(rand.NewPCG(o.seed, 3))
	for ended := false; ; {
		o.Reconnect()
		err := o.Poll()
		host := anySVPHost(dice)
		mac, known := o.ARP[host]
		switch {
		case err != nil:
		case moving.Err() == nil && known:
			err = o.Send(svpclient.Port{VNet: host.VNet, MAC: mac})
		case moving.Err() == nil:
			err = o.Resolve(host, 1)
		case !ended:
			ended = true
			o.Unsettle()
		case o.Quiet():
			return
		}
		switch {
		case t.Context().Err() != nil:
			t.Error("not quiet when the test ended")
			return
		case err != nil && !errors.Is(err, svpclient.ErrLost):
			t.Errorf("illumos %d: %v", o.seed, err)
			return
		}
		time.Sleep(100 * time.Microsecond) // the pace of a guest's frames
	}
}

// oldLinux is a linux-cn-varpd that is started again when it ended, as systemd
// does, and a kernel that keeps what it was told and asks again in the end.
type oldLinux struct {
	*svpclient.Linux
	asked uint32
	lost  int
}

func (o *oldLinux) run(t *testing.T, moving context.Context, addr string) {
	dice := rand.New(rand.NewPCG(7, 7))
	kernel := map[svpclient.Host]svpclient.Neigh{}
	for t.Context().Err() == nil {
		c, err := svpclient.NewLinux(addr)
		if err == nil {
			c.Neighs, o.Linux = kernel, c
			err = o.session(moving, dice)
			o.asked += c.Asked()
			_ = c.Close()
		}
		switch {
		case err == nil:
			return
		case !errors.Is(err, svpclient.ErrLost):
			t.Errorf("linux-cn-varpd: %v", err)
			return
		}
		o.lost++
		time.Sleep(50 * time.Millisecond) // systemd's RestartSec
	}
}

func (o *oldLinux) session(moving context.Context, dice *rand.Rand) error {
	for moving.Err() == nil {
		for range 1 + dice.IntN(50) {
			if err := o.Ask(anySVPHost(dice)); err != nil {
				return err
			}
		}
		if err := o.Answers(); err != nil {
			return err
		}
		time.Sleep(time.Millisecond) // the pace of a kernel's questions
	}
	for host := range o.Neighs {
		if err := o.Ask(host); err != nil {
			return err
		}
	}
	return o.Answers()
}

func anySVPHost(dice *rand.Rand) svpclient.Host {
	net := dice.IntN(svpNets)
	return svpclient.Host{VNet: svpVNet(net), IP: svpIP(net, dice.IntN(svpWriters), dice.IntN(svpNICs))}
}

func svpVNet(net int) uint32 { return uint32(100 + net) }

// svpIP is one of the addresses of a writer: writers do not meet.
func svpIP(net, writer, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(net), byte(1 + writer), byte(1 + n)})
}

// svpWay is a cluster, an agent, and what their changes are about.
type svpWay struct {
	c       *cluster
	servers []string // SVP
	svp     string   // the agent's
	status  string
	agent   subprocess.Process
	owner   log.UUID
	cns     [svpCNs]log.UUID
	vms     [svpCNs]log.UUID
	nets    [svpNets]log.UUID
	made    atomic.Int64
	last    atomic.Uint64 // seq
	kills   int
}

func (w *svpWay) underlay(cn int) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + cn)})
}

func newSVPWay(t *testing.T) *svpWay {
	ports := rig.Ports(t, 3)
	w := &svpWay{c: startClusterAt(t, "127.0.0.1", "--svp", fmt.Sprintf("127.0.0.{n}:%d", ports[0])), owner: client.NewChangeID()}
	for i := range w.c.Servers {
		w.servers = append(w.servers, fmt.Sprintf("127.0.0.%d:%d", i+1, ports[0]))
	}
	if err := errors.Join(netlab.AddBridge("underlay"), netlab.AddAddress("underlay", netip.MustParsePrefix("192.0.2.1/24"))); err != nil {
		t.Fatal(err)
	}
	create := func(set string, o log.Object) log.Op {
		return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
	}
	under := client.NewChangeID()
	ops := []log.Op{
		create("mtu name", &log.NICTag{Name: "u", MTU: 1600}),
		create("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid", &log.Network{UUID: under, Name: "u", NICTag: "u", MTU: 1600, Subnet: netip.MustParsePrefix("192.0.2.0/24"), ProvisionStart: netip.MustParseAddr("192.0.2.1"), ProvisionEnd: netip.MustParseAddr("192.0.2.250")}),
	}
	for n := range w.nets {
		w.nets[n] = client.NewChangeID()
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 0, 0}), 16)
		ops = append(ops, create("fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet uuid vnet_id", &log.Network{
			UUID: w.nets[n], Name: fmt.Sprint("f", n), NICTag: "u", Fabric: true, VNetID: svpVNet(n), MTU: 1400, OwnerUUIDs: []log.UUID{w.owner},
			Subnet: subnet, ProvisionStart: svpIP(n, 200, 0), ProvisionEnd: svpIP(n, 210, 0),
		}))
	}
	for i := range w.cns {
		cn, vm := client.NewChangeID(), client.NewChangeID()
		w.cns[i], w.vms[i] = cn, vm
		ops = append(ops,
			create("hostname uuid", &log.Server{UUID: cn, Hostname: fmt.Sprintf("cn%d", i)}),
			create("belongs_to_type belongs_to_uuid cn_uuid ip network_uuid owner_uuid underlay", &log.NIC{BelongsToType: "server", BelongsToUUID: cn, CNUUID: cn, OwnerUUID: w.owner, NetworkUUID: under, Underlay: true, IP: w.underlay(i)}),
			create("owner_uuid server_uuid uuid", &log.VM{UUID: vm, OwnerUUID: w.owner, ServerUUID: cn}))
	}
	for i := range 2 { // the nodes of the clients are on all vnets, and stay there
		for n := range w.nets {
			ops = append(ops, w.create(i, n, svpIP(n, 100+i, 0)))
		}
	}
	if _, err := w.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w.svp, w.status = fmt.Sprintf("127.0.0.1:%d", ports[1]), fmt.Sprintf("127.0.0.1:%d", ports[2])
	w.agent = subprocess.Process{Name: "agent", Program: program, LogFile: filepath.Join(dir, "agent.log"), Args: []string{
		"agent", "--cn", w.cns[0].String(), "--data", filepath.Join(dir, "agent"), "--svp", w.svp, "--listen", w.status,
		"--servers", strings.Join(w.c.Client.Servers(), ","), "--netns", dir, "--etc-netns", filepath.Join(dir, "etc"),
	}}
	rig.Start(t, &w.agent)
	w.await(t, 1)
	return w
}

func (w *svpWay) create(cn, net int, ip netip.Addr) log.Op {
	return log.Op{
		Action: log.Create, Kind: log.KindNIC, Set: strings.Fields("belongs_to_type belongs_to_uuid cn_uuid ip network_uuid owner_uuid"),
		Object: &log.NIC{BelongsToType: "zone", BelongsToUUID: w.vms[cn], CNUUID: w.cns[cn], OwnerUUID: w.owner, NetworkUUID: w.nets[net], IP: ip},
	}
}

// await waits until the agent has applied a seq.
func (w *svpWay) await(t *testing.T, seq log.Seq) {
	t.Helper()
	waitFor(t, fmt.Sprintf("agent at seq %d", seq), func() bool {
		response, err := http.Get("http://" + w.status + "/status")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		var s agent.Status
		return json.NewDecoder(response.Body).Decode(&s) == nil && s.Applied >= seq
	})
}

// settle waits until all servers and the agent have everything.
func (w *svpWay) settle(t *testing.T) {
	t.Helper()
	last := log.Seq(w.last.Load())
	w.await(t, last)
	for _, s := range w.c.Servers {
		w.c.waitReady(s)
		waitFor(t, s.ID+" at the last seq", func() bool {
			status, err := w.c.Client.StatusOf(t.Context(), s.URL)
			return err == nil && status.Head.Seq >= last
		})
	}
}

// move makes changes, and kills: a server at a time, and once the agent.
func (w *svpWay) move(t *testing.T) {
	long := os.Getenv("RUTTER_LONG") != ""
	until := time.Now().Add(svpFor)
	going := func() bool {
		return !t.Failed() && w.made.Load() < svpChanges && (long || time.Now().Before(until))
	}
	var writers sync.WaitGroup
	for writer := range svpWriters {
		writers.Go(func() { w.write(t, writer, going) })
	}
	for ; going(); w.kills++ {
		if w.kills == 2 {
			if err := errors.Join(w.agent.Stop(syscall.SIGKILL), w.agent.Start()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		s := w.c.Servers[w.kills%3]
		w.c.signal(s, syscall.SIGKILL)
		time.Sleep(300 * time.Millisecond) // it is away for some time
		w.c.start(s)
		w.c.waitReady(s)
	}
	writers.Wait()
}

// write makes random changes of a writer's own NICs.
func (w *svpWay) write(t *testing.T, writer int, going func() bool) {
	dice := rand.New(rand.NewPCG(uint64(writer), 9))
	var held [svpNICs]string // MACs
	for going() {
		n := dice.IntN(svpNICs)
		cn, net := dice.IntN(svpCNs), dice.IntN(svpNets)
		op := w.create(cn, net, svpIP(net, writer, n))
		nic := op.Object.(*log.NIC)
		switch action := dice.IntN(4); {
		case held[n] == "":
		case action == 0:
			op = log.Op{Action: log.Delete, Kind: log.KindNIC, ID: held[n]}
		case action == 1: // another network, and an address there
			op.Action, op.ID, op.Set = log.Update, held[n], []string{"ip", "network_uuid"}
			op.Object = &log.NIC{IP: nic.IP, NetworkUUID: nic.NetworkUUID}
		default: // a move
			op.Action, op.ID, op.Set = log.Update, held[n], []string{"cn_uuid"}
			op.Object = &log.NIC{CNUUID: nic.CNUUID}
		}
		result, err := w.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{op}})
		if err != nil {
			t.Errorf("writer %d: %s %s: %v", writer, op.Action, op.ID, err)
			return
		}
		switch op.Action {
		case log.Create:
			held[n] = result.IDs[0]
		case log.Delete:
			held[n] = ""
		}
		w.made.Add(1)
		for old := w.last.Load(); uint64(result.Last) > old && !w.last.CompareAndSwap(old, uint64(result.Last)); old = w.last.Load() {
		}
	}
}

// svpTruth is what the servers' objects say.
type svpTruth struct {
	arp   map[svpclient.Host]log.MAC
	where map[svpclient.Port]netip.Addr
}

func (w *svpWay) truth(t *testing.T) svpTruth {
	t.Helper()
	truth := svpTruth{map[svpclient.Host]log.MAC{}, map[svpclient.Port]netip.Addr{}}
	for net, uuid := range w.nets {
		nics, err := w.c.Client.List(t.Context(), "/nics", map[string][]string{"network_uuid": {uuid.String()}})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range nics {
			mac, err := log.ParseMAC(o["mac"].(string))
			if err != nil {
				t.Fatal(err)
			}
			truth.arp[svpclient.Host{VNet: svpVNet(net), IP: netip.MustParseAddr(o["ip"].(string))}] = mac
			for i, cn := range w.cns {
				if o["cn_uuid"] == cn.String() {
					truth.where[svpclient.Port{VNet: svpVNet(net), MAC: mac}] = w.underlay(i)
				}
			}
		}
	}
	if len(truth.arp) < 2*svpNets {
		t.Fatalf("%d NICs are left", len(truth.arp))
	}
	return truth
}

func (truth svpTruth) check(t *testing.T, who string, arp map[svpclient.Host]log.MAC, where map[svpclient.Port]netip.AddrPort) {
	for host, mac := range arp {
		if is := truth.arp[host]; is != mac {
			t.Errorf("%s: %v is %s, it has %s", who, host, is, mac)
		}
	}
	for port, at := range where {
		if is := netip.AddrPortFrom(truth.where[port], projections.VXLANPort); is != at {
			t.Errorf("%s: %v is at %s, it has %s", who, port, is, at)
		}
	}
}
