package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"

	"rutter/agent"
	"rutter/agent/ports"
	"rutter/api/client"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/log"
)

// Where an agent listens, inside its CN's namespace.
const (
	statusAddress = "127.0.0.1:5309"
	svpAddress    = "127.0.0.1:1296"
)

// cnID is the id of the input's CN i.
func cnID(i int) log.UUID {
	id := log.UUID{0x56, 0x4d, 0x69, 0xb1, 0xa1, 0x78, 0x4f, 0xbe, 0xb3, 0x6f, 0x3f, 0x2b, 0x7f, 0xd7, 0xed}
	id[15] = byte(i + 1)
	return id
}

// ready asks a server whether it is.
func (s *stage) ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", response.Status)
	}
	return nil
}

// change makes a change of operations, with an id of its own.
func (s *stage) change(ops []log.Op) *log.Change {
	return &log.Change{ID: client.NewChangeID(), Ops: ops}
}

func (s *stage) submit(ctx context.Context, ops []log.Op) (log.Result, error) {
	result, err := s.api.Submit(ctx, s.change(ops))
	s.written = max(s.written, result.Last)
	return result, err
}

// events yields the log's events, up to its present end: everything that was
// acknowledged before is among them, on each server.
func (s *stage) events(ctx context.Context) iter.Seq2[*log.Event, error] {
	return func(yield func(*log.Event, error) bool) {
		for line, err := range s.api.Log(ctx, client.LogQuery{Query: url.Values{"consistent": {"1"}}}) {
			if !yield(line.Event, err) {
				return
			}
		}
	}
}

func (s *stage) server(id string) *subprocess.Process {
	for _, p := range s.servers {
		if p.Name == id {
			return p
		}
	}
	return nil
}

// led returns the status of a server that knows which one leads: for a moment there may be
// none, as on a machine that is busy.
func (s *stage) led(ctx context.Context) (status client.Status, err error) {
	err = until(ctx, failoverMost, "a leader", func() error {
		answer, err := s.api.Status(ctx)
		if err != nil {
			return err
		}
		if status = answer; s.server(status.LeaderID) == nil {
			return fmt.Errorf("the status names %q as the leader", status.LeaderID)
		}
		return nil
	})
	return status, err
}

// network finds a network of the input by its name.
func (s *stage) network(ctx context.Context, name string) (*log.Network, error) {
	var found *log.Network
	for event, err := range s.events(ctx) {
		if err != nil {
			return nil, err
		}
		if n, ok := event.Object.(*log.Network); ok && n.Name == name {
			found = n
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no network is named %q", name)
	}
	return found, nil
}

// readVMs reads the input's VMs from the log: with the addresses and MACs that the log
// chose.
func (s *stage) readVMs(ctx context.Context) error {
	byID := make(map[log.UUID]*vm)
	for event, err := range s.events(ctx) {
		if err != nil {
			return err
		}
		switch o := event.Object.(type) {
		case *log.VM:
			if s.vms[o.Alias] == nil {
				s.vms[o.Alias] = &vm{id: o.UUID, alias: o.Alias, cn: o.ServerUUID}
			}
			byID[o.UUID] = s.vms[o.Alias]
			byID[o.UUID].nics = nil
		case *log.NIC:
			if v := byID[o.BelongsToUUID]; v != nil && event.Action == log.Create {
				v.nics = append(v.nics, o)
			}
		}
	}
	return nil
}

// newVM creates a VM with two NICs, and its namespace.
func (s *stage) newVM(ctx context.Context, alias string, cn *computeNode) error {
	ns, err := netlab.Create(s.namespaces, alias)
	if err != nil {
		return err
	}
	like := s.vms["blue0"]
	owner := like.nics[0].OwnerUUID
	id := client.NewChangeID() // any fresh UUID
	ops := []log.Op{{
		Action: log.Create, Kind: log.KindVM, Set: []string{"alias", "owner_uuid", "server_uuid", "state", "uuid", "zonename"},
		Object: &log.VM{UUID: id, Alias: alias, OwnerUUID: owner, ServerUUID: cn.id, State: "running", Zonename: alias},
	}}
	for _, nic := range like.nics {
		ops = append(ops, log.Op{
			Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "network_uuid", "owner_uuid", "state"},
			Object: &log.NIC{BelongsToType: "zone", BelongsToUUID: id, OwnerUUID: owner, CNUUID: cn.id, NetworkUUID: nic.NetworkUUID, State: "running"},
		})
	}
	if _, err := s.submit(ctx, ops); err != nil {
		return err
	}
	if err := s.readVMs(ctx); err != nil {
		return err
	}
	s.vms[alias].ns = ns
	return nil
}

// vnetOf is the vnet of a VM's fabric, as the input has it.
func vnetOf(alias string) uint32 {
	if strings.HasPrefix(alias, "blue") {
		return 4385813
	}
	return 7654321
}

// mac returns the MAC of the VM's NIC of a family.
func (v *vm) mac(v6 bool) log.MAC {
	for _, nic := range v.nics {
		if nic.IP.Is6() == v6 {
			return nic.MAC
		}
	}
	return log.MAC{}
}

// nodeStatus is an agent's status.
type nodeStatus struct {
	agent.Status
	Security ports.Status `json:"port_security"`
}

// kernel describes what the agent has programmed.
func (s nodeStatus) kernel() string {
	k := s.Kernel
	text := fmt.Sprintf("%d links, %d neighbours, %d FDB entries", k.Links, k.Neighs, k.FDB)
	for _, list := range [][]string{k.Failures, k.Conflicts, k.Problems} {
		for _, line := range list {
			text += "; " + line
		}
	}
	if k.Failure != "" {
		text += "; " + k.Failure
	}
	return text
}

// dial connects from inside the CN's namespace.
func (cn *computeNode) dial(_ context.Context, network, address string) (conn net.Conn, err error) {
	err = cn.ns.Do(func() error {
		conn, err = net.DialTimeout(network, address, answerLimit)
		return err
	})
	return conn, err
}

// status asks the CN's agent.
func (cn *computeNode) status(ctx context.Context) (s nodeStatus, err error) {
	transport := &http.Transport{DialContext: cn.dial, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+statusAddress+"/status", nil)
	if err != nil {
		return s, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return s, errors.Join(fmt.Errorf("the agent of %s does not answer", cn.name), err)
	}
	defer response.Body.Close()
	return s, json.NewDecoder(response.Body).Decode(&s)
}
