package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/log"
)

// Bounds of the steps. A step that takes longer has failed. Most take a moment, but the
// machine may be busy.
const (
	settleLimit = time.Minute     // until servers are ready, until a CN's kernel matches
	answerLimit = 5 * time.Second // for one request to a server or an agent
	replyLimit  = 5 * time.Second // for one ping
	silence     = 300 * time.Millisecond
)

// startAgents makes the VMs' namespaces and starts an agent on each CN.
func (s *stage) startAgents(ctx context.Context) error {
	s.say.begin("An agent on each CN makes its kernel match")
	for _, alias := range s.aliases() {
		ns, err := netlab.Create(s.namespaces, alias)
		if err != nil {
			return err
		}
		s.vms[alias].ns = ns
	}
	s.say.detail("12 VMs as network namespaces, with nothing in them but loopback")
	for _, cn := range s.cns {
		if err := s.join(ctx, cn); err != nil {
			return err
		}
		p := &subprocess.Process{Name: cn.name, Program: s.program, LogFile: logFile(s.folder, cn.name), Launch: func(cmd *exec.Cmd) error { return cn.ns.Do(cmd.Start) }, Args: []string{
			"agent", "--require-port-security=false", "--cn", cn.id.String(), "--data", s.folder + "/" + cn.name, "--socket", s.folder + "/" + cn.name + ".sock",
			"--servers", strings.Join(s.api.Servers(), ","), "--netns", s.namespaces, "--etc-netns", s.resolvers,
		}}
		p.Args = append(p.Args, s.secured(cn.id.String())...)
		if err := p.Start(); err != nil {
			return err
		}
		s.agents = append(s.agents, p)
	}
	if !s.plain {
		s.say.detail("each CN got its certificate for a token that is good once (rutter agent join)")
	}
	took, err := s.settle(ctx, s.cns...)
	if err != nil {
		return err
	}
	for _, cn := range s.cns {
		status, err := cn.status(ctx)
		if err != nil {
			return err
		}
		s.say.detail("%s: cursor %d, kernel matches at %d: %s", cn.name, status.Applied, status.Programmed, status.kernel())
	}
	s.say.result("both kernels match the log after %s", ms(took))
	return nil
}

// settle waits until the kernels of cns match the log's head.
func (s *stage) settle(ctx context.Context, cns ...*computeNode) (time.Duration, error) {
	started := time.Now()
	head, err := s.api.Head(ctx)
	if err != nil {
		return 0, err
	}
	head = max(head, s.written) // that server may be a moment behind
	for _, cn := range cns {
		err := until(ctx, settleLimit, cn.name+" matches the log", func() error {
			status, err := cn.status(ctx)
			if err == nil && status.Programmed < head {
				err = fmt.Errorf("its kernel matches at seq %d, and the log is at %d: %s", status.Programmed, head, status.kernel())
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return time.Since(started), nil
}

func (s *stage) aliases() []string {
	var names []string
	for alias := range s.vms {
		names = append(names, alias)
	}
	slices.Sort(names)
	return names
}

// pingAll pings from each VM of a fabric to each other one on another CN, IPv4
// and IPv6, with one packet each.
func (s *stage) pingAll(fabric string) ([]time.Duration, error) {
	var rtts []time.Duration
	for _, from := range s.aliases() {
		for _, to := range s.aliases() {
			a, b := s.vms[from], s.vms[to]
			if !strings.HasPrefix(from, fabric) || !strings.HasPrefix(to, fabric) || a.cn == b.cn {
				continue
			}
			for _, v6 := range []bool{false, true} {
				rtt, err := a.ns.Ping(b.address(v6), 56, replyLimit)
				if err != nil {
					return nil, fmt.Errorf("%s to %s: the first packet: %w", from, to, err)
				}
				rtts = append(rtts, rtt)
			}
		}
	}
	return rtts, nil
}

// pingWithin pings between the VMs of each fabric, across the CNs.
func (s *stage) pingWithin(context.Context) error {
	s.say.begin("VMs of one fabric reach each other, with the first packet")
	total := 0
	for _, fabric := range []string{"blue", "green"} {
		rtts, err := s.pingAll(fabric)
		if err != nil {
			return err
		}
		total += len(rtts)
		s.say.detail("%-5s: %d pairs across the CNs, IPv4 and IPv6, one packet each, median %s", fabric, len(rtts), ms(median(rtts)))
	}
	s.say.result("%d of %d first packets answered", total, total)
	return nil
}

// pingBetween pings from one fabric to addresses that only the other has.
func (s *stage) pingBetween(context.Context) error {
	s.say.begin("VMs of different fabrics do not")
	for _, pair := range [][2]string{{"blue0", "green5"}, {"green0", "blue5"}} {
		for _, v6 := range []bool{false, true} {
			to := s.vms[pair[1]].address(v6)
			_, err := s.vms[pair[0]].ns.Ping(to, 56, silence)
			if err == nil {
				return fmt.Errorf("%s got a reply from %s, which only %s has", pair[0], to, pair[1])
			}
			if !errors.Is(err, netlab.ErrNoReply) && !isUnreachable(err) {
				return err
			}
			s.say.detail("%s → %s, which only %s has: no reply", pair[0], to, pair[1])
		}
	}
	s.say.result("4 of 4 attempts got nothing")
	return nil
}

// changeNetwork changes a network's gateway, MTU and routes, and checks them inside the
// VMs.
func (s *stage) changeNetwork(ctx context.Context) error {
	s.say.begin("A network's gateway, MTU and a route change")
	blue, err := s.network(ctx, "blue")
	if err != nil {
		return err
	}
	gateway, via := netip.MustParseAddr("10.21.12.2"), netip.MustParseAddr("10.21.12.3")
	changed := &log.Network{Gateway: gateway, MTU: 1500, Routes: log.Routes{{Dst: "10.99.0.0/16", Gateway: via.String()}}}
	started := time.Now()
	result, err := s.submit(ctx, []log.Op{{
		Action: log.Update, Kind: log.KindNetwork, ID: blue.ID(), Set: []string{"gateway", "mtu", "routes"}, Object: changed,
	}})
	if err != nil {
		return err
	}
	s.say.detail("seq %d: gateway %s → %s, mtu %d → 1500, route 10.99.0.0/16 via %s", result.Last, blue.Gateway, gateway, blue.MTU, via)
	want := linkView{mtu: 1500, gateway: gateway, routes: map[netip.Prefix]netip.Addr{netip.MustParsePrefix("10.99.0.0/16"): via}}
	for _, alias := range s.aliases() {
		if !strings.HasPrefix(alias, "blue") {
			continue
		}
		vm := s.vms[alias]
		if err := until(ctx, settleLimit, "the change inside "+alias, func() error { return vm.check(want) }); err != nil {
			return err
		}
	}
	took := time.Since(started)
	if _, err := s.settle(ctx, s.cns...); err != nil {
		return err
	}
	const payload = 1500 - 28 // a full frame: less the IPv4 and ICMP headers
	if _, err := s.vms["blue0"].ns.Ping(s.vms["blue1"].address(false), payload, replyLimit); err != nil {
		return fmt.Errorf("a frame of 1500 bytes: %w", err)
	}
	s.say.result("inside all 6 VMs after %s; frames of 1500 bytes pass", ms(took))
	return nil
}
