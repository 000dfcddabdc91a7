package agentsim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"rutter/api/client"
	"rutter/log"
)

// Populate writes each agent's compute node to the log, with an underlay NIC and one
// NIC on a fabric. Each fabric has mappings NICs, on as many nodes. Each of these nodes
// must receive all of them.
func (s *Scenario) Populate(ctx context.Context, mappings int) error {
	owner, underlay := client.NewChangeID(), client.NewChangeID()
	network := strings.Fields("fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet uuid vnet_id")
	create := func(o log.Object, set ...string) log.Op {
		return log.Op{Action: log.Create, Kind: o.Kind(), Set: set, Object: o}
	}
	at := netip.MustParseAddr
	ops := []log.Op{create(&log.Network{
		UUID: underlay, Name: "underlay", NICTag: tag, MTU: 1500, Subnet: netip.MustParsePrefix("10.64.0.0/16"), ProvisionStart: at("10.64.0.1"), ProvisionEnd: at("10.64.255.254"),
	}, strings.Fields("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid")...)}
	onUnderlay := strings.Fields("belongs_to_type belongs_to_uuid cn_uuid network_uuid owner_uuid underlay")
	onFabric := strings.Fields("belongs_to_type belongs_to_uuid cn_uuid network_uuid owner_uuid")
	var fabric log.UUID
	for i := range s.Fleet.agents {
		if i%mappings == 0 {
			fabric = client.NewChangeID()
			ops = append(ops, create(&log.Network{
				UUID: fabric, Name: fmt.Sprintf("fabric%d", i), NICTag: tag, Fabric: true, VNetID: uint32(i + 1), MTU: 1400, OwnerUUIDs: []log.UUID{owner},
				Subnet: netip.MustParsePrefix("10.0.0.0/16"), ProvisionStart: at("10.0.0.5"), ProvisionEnd: at("10.0.255.250"),
			}, network...))
		}
		cn := CN(i)
		ops = append(ops,
			create(&log.Server{UUID: cn, Hostname: fmt.Sprintf("sim%d", i)}, "hostname", "uuid"),
			create(&log.NIC{BelongsToType: "server", BelongsToUUID: cn, CNUUID: cn, OwnerUUID: owner, NetworkUUID: underlay, Underlay: true}, onUnderlay...),
			create(&log.NIC{BelongsToType: "zone", BelongsToUUID: client.NewChangeID(), CNUUID: cn, OwnerUUID: owner, NetworkUUID: fabric}, onFabric...))
		if len(ops) < log.MaxOps/2 && i < len(s.Fleet.agents)-1 {
			continue
		}
		result, err := s.Submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: ops})
		if err == nil && result.Refusal != nil {
			err = result.Refusal
		}
		if err != nil {
			return err
		}
		ops = nil
	}
	return nil
}

// ColdOutcome is the result of a resync of all agents.
type ColdOutcome struct {
	Agents    int     `json:"agents"`
	Seconds   float64 `json:"all_live_again_s"`
	Snapshots uint64  `json:"scopes_sent_whole"`
	Shared    int64   `json:"scopes_shared"` // of Snapshots: had been encoded for another
	Objects   uint64  `json:"objects"`
	Connects  uint64  `json:"connects"`
	Refused   int64   `json:"told_to_come_again"`
	// Memory of each server: Resident, in bytes. The most is over samples every coldPoll.
	Before []int64 `json:"server_memory_before"`
	Most   []int64 `json:"server_memory_most"`
	After  []int64 `json:"server_memory_after"`
	Heap   []int64 `json:"heap_in_use_after"`
	Cycles []int64 `json:"collections"` // since the start of the server
}

// coldPoll is the time between two samples of memory in a resync, which takes seconds.
const coldPoll = 20 * time.Millisecond

// Cold makes all agents drop their state and connect again without a cursor, all at
// once. It measures the time until each is live again.
func (s *Scenario) Cold(ctx context.Context) (o ColdOutcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	before := s.Fleet.Counts()
	shared, refused := s.sum(ctx, "rutter_feed_scopes_shared_total"), s.sum(ctx, "rutter_feed_snapshots_refused_total")
	o.Agents, o.Before = len(s.Fleet.agents), s.resident()
	o.Most = o.Before
	begin := time.Now()
	forgot := s.Fleet.renewed.Load()
	s.Fleet.Forget()
	tick := time.NewTicker(coldPoll)
	defer tick.Stop()
	for s.Fleet.renewed.Load()-forgot < uint64(o.Agents) || s.Fleet.live.Load() < int64(o.Agents) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return o, fmt.Errorf("%d of %d agents are live, %d hold all anew: %w", s.Fleet.live.Load(), o.Agents, s.Fleet.renewed.Load()-forgot, ctx.Err())
		}
		now := s.resident()
		for i := range now {
			now[i] = max(now[i], o.Most[i])
		}
		o.Most = now
	}
	o.Seconds = time.Since(begin).Seconds()
	o.After = s.resident()
	after := s.Fleet.Counts()
	o.Snapshots, o.Objects, o.Connects = after.Scopes-before.Scopes, after.Objects-before.Objects, after.Connects-before.Connects
	o.Shared = s.sum(ctx, "rutter_feed_scopes_shared_total") - shared
	o.Refused = s.sum(ctx, "rutter_feed_snapshots_refused_total") - refused
	for _, server := range s.Cluster.Client.Servers() {
		text, _ := metricsOf(ctx, server)
		o.Heap = append(o.Heap, metric(text, "go_memstats_heap_inuse_bytes"))
		o.Cycles = append(o.Cycles, metric(text, "go_gc_duration_seconds_count"))
	}
	if o.Objects == 0 {
		err = errors.New("a resync brought no objects")
	}
	return o, err
}

// resident returns the memory of each server, 0 if this process did not start it.
func (s *Scenario) resident() []int64 {
	held := make([]int64, len(s.Cluster.Servers))
	for i, p := range s.Cluster.Servers {
		if p.Program != "" {
			held[i] = Resident(p.PID())
		}
	}
	return held
}

// sum returns the sum of a metric over all servers.
func (s *Scenario) sum(ctx context.Context, name string) (total int64) {
	for _, server := range s.Cluster.Client.Servers() {
		text, _ := metricsOf(ctx, server) // without it the value is 0
		total += metric(text, name)
	}
	return total
}
