package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/subprocess"
	"rutter/log"
)

// Addresses of the demo's underlay.
const (
	serverHost  = "192.168.99.1"
	underlayMTU = 1600 // bytes: the demo raises a network's MTU to 1500
)

// stage has the processes, the namespaces and the client of the demo.
type stage struct {
	say        *narrator
	folder     string
	program    string
	namespaces string // folder of named network namespaces
	resolvers  string // folder that stands for /etc/netns

	servers []*subprocess.Process
	agents  []*subprocess.Process
	cns     []*computeNode
	vms     map[string]*vm // by alias
	plain   bool           // no TLS
	client  *http.Client
	api     *client.Client
	tagged  bool    // the kernel has 802.1Q
	written log.Seq // of the last change that was acknowledged to us
}

// computeNode is one CN: its id and its namespace.
type computeNode struct {
	id   log.UUID
	name string
	ns   netlab.Namespace
	port string // its port on the underlay's bridge
	addr netip.Addr
}

// vm is one VM of the input, with the log's objects.
type vm struct {
	id    log.UUID
	alias string
	cn    log.UUID
	ns    netlab.Namespace
	nics  []*log.NIC
}

// address returns the VM's address of a family, which the log may have chosen.
func (v *vm) address(v6 bool) netip.Addr {
	for _, nic := range v.nics {
		if nic.IP.Is6() == v6 {
			return nic.IP
		}
	}
	return netip.Addr{}
}

// play runs all steps. The first step that fails ends it.
func (s *stage) play(ctx context.Context) error {
	s.vms = make(map[string]*vm)
	for _, act := range []func(context.Context) error{
		s.buildUnderlay, s.startServers, s.loadInput, s.startAgents, s.pingWithin, s.pingBetween,
		s.vmThatLies, s.changeNetwork, s.killLeader, s.cutNode, s.stopServers, s.countAtEnd,
	} {
		if err := act(ctx); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			s.say.line("✗ ", "%s: %v", s.say.step, err)
			s.showLogs()
			return fmt.Errorf("%s: %w", s.say.step, err)
		}
	}
	s.say.table()
	return nil
}

// showLogs prints the end of each process's log, where a step failed.
func (s *stage) showLogs() {
	for _, p := range append(append([]*subprocess.Process{}, s.servers...), s.agents...) {
		output.Printf(s.say.out, "\n--- the end of %s's log\n", p.Name)
		output.Lines(s.say.out, "", p.LastLines(8))
	}
}

// endLimit bounds how long the processes may take to end in order.
const endLimit = 4 * time.Second

// end stops every process in order. What is left after endLimit ends with this
// process, which is the first of its process namespace.
func (s *stage) end() {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	for _, p := range append(append([]*subprocess.Process{}, s.agents...), s.servers...) {
		if p.Runs() {
			_ = p.Signal(syscall.SIGTERM)
		}
	}
	for _, p := range append(append([]*subprocess.Process{}, s.agents...), s.servers...) {
		_ = awaitEnd(ctx, p, syscall.SIGTERM)
	}
}

// buildUnderlay makes the switch, and a namespace on it for each CN.
func (s *stage) buildUnderlay(ctx context.Context) error {
	s.say.begin("Two compute nodes on an underlay")
	for _, dir := range []string{s.namespaces, s.resolvers} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if err := errors.Join(netlab.AddBridge("underlay"), netlab.AddAddress("underlay", netip.MustParsePrefix(serverHost+"/24"))); err != nil {
		return err
	}
	for i := range 2 {
		cn := &computeNode{
			id: cnID(i), name: fmt.Sprintf("cn%d", i+1), port: fmt.Sprintf("port%d", i+1),
			addr: netip.AddrFrom4([4]byte{192, 168, 99, byte(11 + i)}),
		}
		var err error
		if cn.ns, err = netlab.Create(s.namespaces, cn.name); err != nil {
			return err
		}
		mac := [6]byte{0x90, 0xb8, 0xd0, 0, 0, byte(i + 1)}
		if err := errors.Join(
			netlab.AddVeth(cn.port, "net0", cn.ns, underlayMTU),
			netlab.SetMaster(cn.port, "underlay"),
			netlab.SetUp(cn.port, true),
			cn.ns.Do(func() error {
				return errors.Join(netlab.SetMAC("net0", mac), netlab.SetUp("net0", true), netlab.AddAddress("net0", netip.PrefixFrom(cn.addr, 24)))
			}),
		); err != nil {
			return err
		}
		s.cns = append(s.cns, cn)
		s.say.detail("%s: network namespace, net0 at %s, MTU %d", cn.name, cn.addr, underlayMTU)
	}
	tagged, err := netlab.HasVLAN("underlay")
	if err != nil {
		return err
	}
	s.tagged = tagged
	if s.tagged {
		s.say.detail("this kernel has 802.1Q: the fabrics are tagged, VXLAN → VLAN 4 → bridge → veth")
	} else {
		s.say.detail("this kernel has no 802.1Q: the fabrics are untagged, VXLAN → bridge → veth")
	}
	// The switch's ports take a moment to forward after they are set up.
	err = until(ctx, settleLimit, "the underlay", func() error {
		_, err := s.cns[0].ns.Ping(s.cns[1].addr, underlayMTU-28, silence)
		return err
	})
	if err != nil {
		return err
	}
	s.say.result("2 CNs reach each other with full frames")
	return nil
}

// startServers starts three servers and waits until each is ready.
func (s *stage) startServers(ctx context.Context) error {
	s.say.begin("Three servers agree on a log")
	const peers = "s1=127.0.0.1:7421,s2=127.0.0.1:7431,s3=127.0.0.1:7441"
	if err := s.certify("s1", "s2", "s3"); err != nil {
		return err
	}
	var urls []string
	for i := range 3 {
		name := fmt.Sprintf("s%d", i+1)
		listen := fmt.Sprintf("%s:%d", serverHost, 7420+10*i)
		p := &subprocess.Process{Name: name, Program: s.program, LogFile: logFile(s.folder, name), Args: []string{
			"server", "--id", name, "--data", s.folder + "/" + name, "--listen", listen,
			"--raft", fmt.Sprintf("127.0.0.1:%d", 7421+10*i), "--svp", fmt.Sprintf("127.0.0.1:%d", 1296+i),
			"--peers", peers,
		}}
		p.Args = append(p.Args, s.secured(name)...)
		if err := p.Start(); err != nil {
			return err
		}
		s.servers = append(s.servers, p)
		urls = append(urls, s.scheme()+listen)
	}
	if err := s.connect(urls); err != nil {
		return err
	}
	for _, url := range urls {
		if err := until(ctx, settleLimit, url+" is ready", func() error { return s.ready(ctx, url) }); err != nil {
			return err
		}
	}
	status, err := s.led(ctx)
	if err != nil {
		return err
	}
	s.say.result("cluster %s, term %d, leader %s", status.Head.Cluster, status.Term, status.LeaderID)
	return nil
}
