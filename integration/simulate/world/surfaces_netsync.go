package world

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"rutter/agent"
	"rutter/agent/netsync"
	"rutter/agent/vminfo/vmdoc"
	"rutter/api/client"
	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/log/report"
)

const (
	// reportingNodes bounds the nodes that have VMs of their own to report.
	reportingNodes = 3
	// ownVMs bounds the VMs of one node that it reports.
	ownVMs = 4
)

// ownVM is a VM whose NIC its node reports, and no client writes.
type ownVM struct {
	id   log.UUID
	mac  log.MAC
	runs bool
}

// ownNetwork is the fabric on which compute nodes may make NICs.
const ownNetwork = "0e70de36-a40b-4ac0-9429-819f5ff82021"

// makeOwnNetwork makes it.
func makeOwnNetwork() log.Op {
	return op(log.Create, log.KindNetwork, "", `{"uuid":%q,"name":"own","fabric":true,"vnet_id":1010,"vlan_id":4,"nic_tag":"sdc_overlay","subnet":"10.30.0.0/16","provision_start_ip":"10.30.0.5","provision_end_ip":"10.30.250.250","mtu":1400,"owner_uuids":[%q],"self_provision":"any"}`, ownNetwork, owner)
}

// vmSource has the VMs of a node, as the programs that run VMs would say. It outlives the node's
// agents. It implements netsync.Node, and netsync.Servers by the client of the agent that runs.
type vmSource struct {
	n *node

	mu   sync.Mutex // protects what follows
	rnd  *rand.Rand // of change ids
	vms  []ownVM
	made byte
	sent map[log.UUID]bool // changes of reports without an answer
	sync *netsync.Syncer   // nil: no agent runs
}

func newVMSource(n *node) *vmSource {
	return &vmSource{n: n, rnd: n.w.rand("vms of " + n.name), sent: map[log.UUID]bool{}}
}

// VMs implements netsync.Node.
func (s *vmSource) VMs() (vms []netsync.VM, gone func(log.UUID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := map[log.UUID]bool{}
	for _, vm := range s.vms {
		fields, err := vmdoc.ParseValue(fmt.Appendf(nil, `{"mac":%q,"network_uuid":%q,"primary":true}`, vm.mac, ownNetwork))
		if err != nil {
			panic(err)
		}
		state := "stopped"
		if vm.runs {
			state = "running"
		}
		there[vm.id] = true
		vms = append(vms, netsync.VM{UUID: vm.id, Owner: owner, State: state, NICs: []netsync.NIC{{MAC: vm.mac, Fields: fields}}})
	}
	slices.SortFunc(vms, func(a, b netsync.VM) int { return cmp.Compare(a.UUID.String(), b.UUID.String()) })
	return vms, func(id log.UUID) bool { return !there[id] }
}

// Edit implements netsync.Node. The VMs have no manifests that may be written.
func (s *vmSource) Edit(id log.UUID, _ func(vmdoc.Value) vmdoc.Value) error {
	return fmt.Errorf("VM %s has no manifest", id)
}

// Reboot implements netsync.Node.
func (s *vmSource) Reboot(log.UUID) error { return nil }

// newID makes ids of changes.
func (s *vmSource) newID() log.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return changeID(s.rnd)
}

// reporter sends reports, and records what came of them.
type reporter struct {
	*vmSource
	api *client.Client
}

// Raw implements netsync.Servers.
func (r reporter) Raw(ctx context.Context, method, path string, body []byte) (json.RawMessage, error) {
	var m report.Report
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	for i := range m.Changes {
		r.begin(m.Changes[i].ID)
	}
	text, err := r.api.Raw(ctx, method, path, body)
	var a report.Answer
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	for i := range m.Changes {
		e := seen.Reported{CN: r.n.cn, Change: m.Changes[i].Change, Outcome: seen.Unknown}
		switch {
		case err != nil:
			e.Err = err.Error()
		case a.Stale || i >= len(a.Outcomes):
			e.Err = "stale"
		case a.Outcomes[i].Refusal != nil:
			e.Outcome, e.Err = seen.Refused, a.Outcomes[i].Refusal.Message
		case a.Outcomes[i].Unknown != "":
			e.Err = a.Outcomes[i].Unknown
		default:
			e.Outcome, e.Last = seen.Accepted, a.Outcomes[i].Last
		}
		r.n.w.seen.Add(r.n.name, e)
		r.n.w.count("reported "+string(e.Outcome), 1)
	}
	return text, err
}

// begin notes a change that is sent.
func (s *vmSource) begin(id log.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent[id] {
		s.n.w.count(coverage.ReportRetried, 1)
	}
	s.sent[id] = true
}

// syncNICs keeps the NICs of a node's own VMs in step with the log until ctx ends, as package
// cmd/rutter/node does. Its ledger is in the agent's folder, and lost, damaged or old with it.
func (n *node) syncNICs(ctx context.Context, a *agent.Agent, api *client.Client) {
	if n.i >= reportingNodes {
		return
	}
	syncer, err := netsync.New(netsync.Config{
		CN: n.cn, Folder: n.dir, Incarnation: a.Incarnation(), Log: a, Node: n.source, Servers: reporter{n.source, api},
		NewID: n.source.newID, Every: 2 * time.Second, Logger: n.w.logger(n.name),
	})
	if err != nil {
		n.w.fail("NICs of %s: %v", n.name, err)
		return
	}
	n.source.set(syncer)
	defer n.source.set(nil)
	if err := syncer.Run(ctx); err != nil {
		n.w.fail("NICs of %s: %v", n.name, err)
	}
}

func (s *vmSource) set(syncer *netsync.Syncer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sync = syncer
}

// different says in what the log differs from the node's own VMs. A VM that a restore took out of
// the log is no longer the node's to report, if it has a certificate.
func (s *vmSource) different(get func(log.Kind, string) (log.Object, bool)) (why []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, vm := range s.vms {
		if _, ok := get(log.KindVM, vm.id.String()); !ok {
			continue
		}
		o, ok := get(log.KindNIC, vm.mac.String())
		nic, is := o.(*log.NIC)
		switch {
		case !ok || !is:
			why = append(why, fmt.Sprintf("%s has NIC %s, and the log has not", s.n.name, vm.mac))
		case nic.CNUUID != s.n.cn || nic.BelongsToUUID != vm.id || (nic.State == "running") != vm.runs:
			why = append(why, fmt.Sprintf("%s has NIC %s of VM %s, which runs: %v, and the log has it as %s of %s on %s", s.n.name, vm.mac, vm.id, vm.runs, nic.State, nic.BelongsToUUID, nic.CNUUID))
		}
	}
	return why
}

// change starts, stops, makes or removes a VM of the node. add first makes the VM in the log, on
// this node, as an operator does.
func (s *vmSource) change(rnd *rand.Rand, add func(ownVM) bool) {
	s.mu.Lock()
	k, n := rnd.IntN(10), len(s.vms)
	if n > 0 && k < 5 || n == ownVMs && k < 8 {
		vm := &s.vms[rnd.IntN(n)]
		vm.runs = !vm.runs
	} else if n > 0 && k < 7 {
		i := rnd.IntN(n)
		s.vms = slices.Delete(s.vms, i, i+1)
	} else if n < ownVMs {
		s.made++
		vm := ownVM{id: uuid(rnd), mac: log.MAC{0x90, 0xb8, 0xd2, 0, byte(s.n.i), s.made}, runs: true}
		s.mu.Unlock()
		if ok := add(vm); !ok {
			return
		}
		s.mu.Lock()
		s.vms = append(s.vms, vm)
	}
	syncer := s.sync
	s.mu.Unlock()
	if syncer != nil {
		syncer.Wake()
	}
}

// runVMs starts, stops, makes and removes VMs on nodes until ctx ends.
func (w *world) runVMs(ctx context.Context) {
	const who = "o1"
	rnd := w.rand(who)
	api, err := w.client(w.net.Host(who), "", 0)
	if err != nil {
		w.fail("client: %v", err)
		return
	}
	defer api.Close()
	for ctx.Err() == nil {
		n := w.nodes[rnd.IntN(min(len(w.nodes), reportingNodes))]
		n.source.change(rnd, func(vm ownVM) bool {
			within, cancel := context.WithTimeout(w.ctx, 10*time.Second)
			defer cancel()
			c := &log.Change{ID: changeID(rnd), Ops: []log.Op{op(log.Create, log.KindVM, "", `{"uuid":%q,"alias":"own-%s","owner_uuid":%q,"brand":"joyent","state":"running","server_uuid":%q}`, vm.id, vm.id, owner, n.cn)}}
			return w.write(within, who, "changes", api.Submit, c).Outcome == seen.Accepted
		})
		pause(ctx, time.Second+time.Duration(rnd.Int64N(int64(2*time.Second))))
	}
}
