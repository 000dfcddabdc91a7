package replayinto

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"rutter/cmd/rutter/bulkwrite"
	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/rules"
)

// target decides the changes that are under way in any order, by the rules of the servers.
type target struct {
	mu    sync.Mutex
	rng   *rand.Rand
	state *projections.State
	seq   log.Seq
	open  []*underWay
	most  int // under way at once
}

type underWay struct {
	change *log.Change
	result log.Result
	done   chan error
}

func (d *target) Start(_ context.Context, c *log.Change) (func(context.Context) (log.Result, error), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := &underWay{change: c, done: make(chan error, 1)}
	d.open = append(d.open, a)
	d.most = max(d.most, len(d.open))
	return func(ctx context.Context) (log.Result, error) {
		d.decide()
		select {
		case err := <-a.done:
			return a.result, err
		case <-ctx.Done():
			return a.result, ctx.Err()
		}
	}, nil
}

// decide decides one of those that are under way.
func (d *target) decide() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.open) == 0 {
		return
	}
	at := d.rng.IntN(len(d.open))
	a := d.open[at]
	d.open = slices.Delete(d.open, at, at+1)
	events, result, err := decided(d.state, a.change, &d.seq)
	if a.result = result; err == nil && events == nil && result.Refusal != nil {
		err = result.Refusal
	}
	a.done <- err
}

func decided(s *projections.State, c *log.Change, seq *log.Seq) ([]*log.Event, log.Result, error) {
	events, result := rules.Decide(s, c)
	for _, e := range events {
		*seq++
		if _, err := s.Apply(*seq, e); err != nil {
			return events, result, err
		}
	}
	return events, result, nil
}

// drawn is an operation of any kind that people and nodes write, which may be refused: of few
// objects, so that they refer to each other, and take names and addresses from each other.
func drawn(t *testing.T, rng *rand.Rand) log.Op {
	n := func(most int) int { return rng.IntN(most) }
	pick := func(all ...string) string { return all[n(len(all))] }
	vm, cn, net, fabric := fmt.Sprintf("#2%d#", n(4)), fmt.Sprintf("#1%d#", n(3)), fmt.Sprintf("#3%d#", n(4)), fmt.Sprintf("#3%d#", 4+n(4))
	mac := fmt.Sprintf("00:00:00:00:0%d:01", n(3))
	own := fmt.Sprintf("02:00:00:00:00:0%d", n(6))
	texts := []string{
		fmt.Sprintf(`create nic_tag {"name": %q}`, pick("external", "overlay", "lab")),
		fmt.Sprintf(`delete nic_tag %s`, pick("external", "lab")),
		fmt.Sprintf(`create server {"uuid": %q, "hostname": "cn", "admin_ip": "10.99.0.%d"}`, cn, 1+n(3)),
		fmt.Sprintf(`update server %s {"admin_ip": "10.99.0.%d"}`, cn, 1+n(3)),
		fmt.Sprintf(`update server %s {"comments": "c%d", "labels": ["a=%d"]}`, cn, n(9), n(9)),
		fmt.Sprintf(`delete server %s`, cn),
		fmt.Sprintf(`create network {"uuid": %q, "name": %q, "nic_tag": %q, "vlan_id": %d, "subnet": "10.%d.0.0/24", "provision_start_ip": "10.%[5]d.0.2", "provision_end_ip": "10.%[5]d.0.200"}`, net, pick("a", "b", "c"), pick("external", "lab"), n(2)*7, n(3)),
		fmt.Sprintf(`create fabric_vlan {"owner_uuid": "#1#", "vlan_id": %d, "name": "v"}`, 2+n(2)),
		fmt.Sprintf(`delete fabric_vlan #1#:%d`, 2+n(2)),
		fmt.Sprintf(`create network {"uuid": %q, "name": %q, "nic_tag": "overlay", "fabric": true, "vlan_id": %d, "vnet_id": %d, "owner_uuids": ["#1#"], "subnet": "10.%d.0.0/24", "provision_start_ip": "10.%[5]d.0.2", "provision_end_ip": "10.%[5]d.0.200"}`, fabric, pick("d", "e", "f", "g"), 2+n(2), 100+n(2), 10+n(4)),
		fmt.Sprintf(`update network %s {"name": %q, "description": "d"}`, pick(net, fabric), pick("a", "b", "c", "d")),
		fmt.Sprintf(`delete network %s`, pick(net, fabric)),
		fmt.Sprintf(`create network_pool {"uuid": "#4%d#", "name": %q, "networks": [%q]}`, n(2), pick("p", "q"), net),
		fmt.Sprintf(`update network_pool #4%d# {"name": %q, "networks": [%q]}`, n(2), pick("p", "q"), net),
		fmt.Sprintf(`delete network_pool #4%d#`, n(2)),
		fmt.Sprintf(`create router {"uuid": "#5%d#", "name": %q, "owner_uuid": "#1#", "networks": ["#34#", %q]}`, n(2), pick("r", "s"), pick("#35#", "#36#", "#37#")),
		fmt.Sprintf(`update router #5%d# {"vm_uuid": %q}`, n(2), vm),
		fmt.Sprintf(`update router #5%d# {"networks": [%q, "#34#"]}`, n(2), pick("#35#", "#36#")),
		fmt.Sprintf(`delete router #5%d#`, n(2)),
		fmt.Sprintf(`create vm {"uuid": %q, "alias": "web", "owner_uuid": "#1#", "state": "running", "server_uuid": %q}`, vm, cn),
		fmt.Sprintf(`update vm %s {"server_uuid": %q}`, vm, cn),
		fmt.Sprintf(`update vm %s {"state": %q}`, vm, pick("running", "stopped")),
		fmt.Sprintf(`delete vm %s`, vm),
		fmt.Sprintf(`create nic {"mac": %q, "belongs_to_type": "zone", "belongs_to_uuid": %q, "owner_uuid": "#1#", "network_uuid": %q, "primary": %s}`, own, vm, pick(net, fabric), pick("true", "false")),
		fmt.Sprintf(`create nic {"mac": %q, "belongs_to_type": "server", "belongs_to_uuid": %q, "owner_uuid": "#1#", "nic_tags_provided": [%q]}`, mac, cn, pick("external", "lab")),
		fmt.Sprintf(`update nic %s {"primary": true}`, own),
		fmt.Sprintf(`update nic %s {"network_uuid": %q}`, own, pick(net, fabric)),
		fmt.Sprintf(`delete nic %s`, pick(own, mac)),
		fmt.Sprintf(`create aggregation {"name": "aggr%d", "macs": [%q]}`, n(2), mac),
		fmt.Sprintf(`update aggregation %s-aggr%d {"lacp_mode": %q, "nic_tags_provided": ["lab"]}`, cn, n(2), pick("off", "active")),
		fmt.Sprintf(`delete aggregation %s-aggr%d`, cn, n(2)),
		fmt.Sprintf(`create vmm {"id": "#6%d#", "instance_id": %q, "sled_id": %q, "state": "running", "gen": 1}`, n(5), vm, cn),
		fmt.Sprintf(`update vmm #6%d# {"state": %q, "gen": %d}`, n(5), pick("running", "stopped", "destroyed"), 2+n(20)),
		fmt.Sprintf(`create migration {"id": "#7%d#", "instance_id": %q, "source_propolis_id": "#6%d#", "source_gen": 1, "source_state": "pending"}`, n(3), vm, n(5)),
		fmt.Sprintf(`update migration #7%d# {"source_gen": %d, "source_state": %q}`, n(3), 2+n(20), pick("in_progress", "completed", "failed")),
		fmt.Sprintf(`create ip {"network_uuid": %q, "ip": "10.%d.0.%d", "reserved": true}`, pick(net, fabric), n(14), 2+n(3)),
		fmt.Sprintf(`update ip %s:10.%d.0.%d {"reserved": false}`, pick(net, fabric), n(14), 2+n(3)),
	}
	return changetest.Op(t, texts[n(len(texts))])
}

// objects are those of a state without the times that deciding stamps.
func objects(t *testing.T, s *projections.State) string {
	var out strings.Builder
	for _, kind := range log.Kinds() {
		for r := range s.List(kind) {
			o := log.Clone(r.Object)
			if nic, is := o.(*log.NIC); is {
				nic.Created, nic.Modified = 0, 0
			}
			b, err := log.AppendObjectJSON(nil, o)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s %s %s\n", kind, o.ID(), b)
		}
	}
	return out.String()
}

// Whatever order the changes of a log that are under way are decided in, the target has the
// same objects at the end, of every kind that is replayed.
func TestAnyOrderOfEveryKind(t *testing.T) {
	kinds := map[string]int{}
	most := 0
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 22))
		source, seq := projections.NewState(), log.Seq(0)
		source.SetFeature(log.FeatureVersion)
		d := &target{rng: rng, state: projections.NewState()}
		d.state.SetFeature(log.FeatureVersion)
		w := bulkwrite.New(t.Context(), d, bulkwrite.Options{UnderWay: 64})
		made := 0
		for tries := 0; made < 250 && tries < 5000; tries++ {
			c := &log.Change{ID: changetest.UUID(uint64(tries + 1000)), Actor: "test", Seed: uint64(tries), Time: log.Time(1<<60 + tries), Ops: []log.Op{drawn(t, rng)}}
			events, result, err := decided(source, c, &seq)
			if err != nil {
				t.Fatal(err)
			}
			if result.Refusal != nil || len(events) == 0 {
				continue
			}
			made++
			for _, e := range events {
				kinds[e.Kind.String()+" "+e.Action.String()]++
			}
			item, err := itemOf(events)
			if err != nil {
				t.Fatal(err)
			}
			item.Change.ID, item.Change.Actor, item.Change.Time = c.ID, c.Actor, c.Time
			item.Settled = func(_ log.Result, refused error) error {
				if refused != nil {
					t.Errorf("seed %d: %v: %v", seed, c.Ops[0], refused)
					for _, e := range events {
						b, _ := log.AppendObjectJSON(nil, e.Object)
						t.Logf("%s %s %s %v", e.Action, e.Kind, b, e.Changed)
					}
				}
				return nil
			}
			if err := w.Add(item); err != nil {
				t.Fatalf("seed %d: change %d: %v", seed, made, err)
			}
		}
		if err := w.Wait(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got, want := objects(t, d.state), objects(t, source); got != want {
			t.Fatalf("seed %d:\n got %s\nwant %s", seed, got, want)
		}
		most = max(most, d.most)
	}
	if most < 3 {
		t.Errorf("at most %d changes were under way at once", most)
	}
	for _, kind := range []string{"server", "network_pool", "fabric_vlan", "router", "aggregation", "vmm", "migration", "ip", "nic", "network", "vm", "nic_tag"} {
		if kinds[kind+" create"] == 0 {
			t.Errorf("no %s was made", kind)
		}
	}
}
