package cutover

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// placement restarts the servers, one after another, so that the old CNAPI or the log
// places VMs. No job runs meanwhile: open tickets stay with their owner.
func (in *installation) placement(who string) {
	in.t.Helper()
	in.gate.Lock()
	defer in.gate.Unlock()
	for _, s := range in.cluster.Servers {
		at := slices.Index(s.Args, "--placement")
		s.Args[at+1] = who
		if err := s.Stop(syscall.SIGTERM); err != nil {
			in.t.Fatal(err)
		}
		if err := s.Start(); err != nil {
			in.t.Fatal(err)
		}
		if err := in.cluster.AwaitReady(in.t.Context(), s); err != nil {
			in.t.Fatal(err)
		}
	}
	in.await("the log has a node that runs", func() bool {
		var server object
		err := call(in.t.Context(), http.MethodGet, in.public.of("cnapi")+"/servers/"+oldNode, nil, &server)
		return err == nil && server["status"] == "running"
	})
}

// fabric makes a fabric network with NAT, and returns its UUID.
func (in *installation) fabric(vlan int) (id string) {
	in.t.Helper()
	var made object
	base := in.public.of("napi") + "/fabrics/" + theOwner + "/vlans"
	in.must(http.MethodPost, base, object{"vlan_id": vlan, "name": fmt.Sprint("vlan", vlan)})
	if err := call(in.t.Context(), http.MethodPost, fmt.Sprint(base, "/", vlan, "/networks"), object{
		"name": fmt.Sprint("fabric", vlan), "subnet": fmt.Sprintf("10.%d.0.0/24", vlan), "gateway": fmt.Sprintf("10.%d.0.1", vlan), "provision_start_ip": fmt.Sprintf("10.%d.0.5", vlan),
		"provision_end_ip": fmt.Sprintf("10.%d.0.250", vlan), "resolvers": []string{"8.8.8.8"}, "internet_nat": true,
	}, &made); err != nil {
		in.t.Fatal(err)
	}
	in.flag(text(made, "uuid"), false)
	return text(made, "uuid")
}

// flag waits until NAPI says so of the gateway of a network.
func (in *installation) flag(network string, want bool) {
	in.t.Helper()
	in.await(fmt.Sprintf("gateway_provisioned is %v", want), func() bool {
		var n object
		err := call(in.t.Context(), http.MethodGet, in.public.of("napi")+"/networks/"+network, nil, &n)
		return err == nil && (n["gateway_provisioned"] == true) == want
	})
}

// natZone: of two VMs that are made at once on a fabric network, one's job makes the NAT
// zone and the other's finds it; so does that of a third. With the last of them the zone
// goes, and the network's flag (5.5, fabric NAT).
func (in *installation) natZone(ctx context.Context, network string) {
	in.t.Helper()
	one := &caller{names: in.public, network: network, owner: theOwner, eachCall: func(name string) { in.counted("NAT " + name) }}
	madeBefore, foundBefore := in.vmapi.natMade.Load(), in.vmapi.natFound.Load()
	ids, errs := make([]string, 3), make([]error, 3)
	var making sync.WaitGroup
	for i := range 2 {
		making.Go(func() { ids[i], errs[i] = one.create(ctx, fmt.Sprint("natted", i)) })
	}
	making.Wait()
	in.flag(network, true)
	ids[2], errs[2] = one.create(ctx, "natted2")
	for _, err := range errs {
		if err != nil {
			in.t.Fatalf("%s: a VM with a NAT zone: %v", in.step, err)
		}
	}
	if made, found := in.vmapi.natMade.Load()-madeBefore, in.vmapi.natFound.Load()-foundBefore; made != 1 || found != 2 {
		in.t.Errorf("%s: %d jobs made a NAT zone, and %d found one; want 1 and 2", in.step, made, found)
	}
	zones := func(door string) (list []object) {
		if err := call(ctx, http.MethodGet, door+"/vms?alias=nat-"+network+"&state=running", nil, &list); err != nil {
			in.t.Fatal(err)
		}
		return list
	}
	if got := zones(in.public.of("vmapi")); len(got) != 1 {
		in.t.Fatalf("%s: NAT zones: %v, want one", in.step, got)
	}
	for i, id := range ids {
		if i > 0 { // the last ones use it
			in.flag(network, true)
		}
		if err := one.remove(ctx, id); err != nil {
			in.t.Fatal(err)
		}
	}
	in.flag(network, false)
	in.await("the NAT zone is gone", func() bool { return len(zones(in.public.of("vmapi"))) == 0 })
}

// killLeader kills the leader, while the names lead to another server, in the middle of a
// provision that is handed on and of a wait for a ticket, and starts it. Both end as if
// nothing had been.
func (in *installation) killLeader(ctx context.Context) {
	in.t.Helper()
	leader, err := in.cluster.Leader(ctx)
	if err != nil {
		in.t.Fatal(err)
	}
	n := 1
	if leader == in.cluster.Servers[0] {
		n = 2
		in.public.point(in.listener("napi", n), in.listener("cnapi", n), in.listener("vmapi", n))
		in.jobs.point(in.listener("napi", n), in.listener("cnapi", n), in.listener("vmapi", n))
		for _, c := range in.callers {
			want := c.begun.Load() + 1
			in.await("nothing is under way at it", func() bool { return c.ended.Load() >= want || in.t.Failed() })
		}
	}
	reached, resume := in.vmapi.holdNext()
	defer resume()
	select {
	case <-reached:
	case <-time.After(patience):
		in.t.Fatalf("%s: no VM is made", in.step)
	}
	turn := in.waitForTurn(in.listener("cnapi", n))
	if err := leader.Stop(syscall.SIGKILL); err != nil {
		in.t.Fatal(err)
	}
	resume()
	turn()
	if err := leader.Start(); err != nil {
		in.t.Fatal(err)
	}
	if err := in.cluster.AwaitReady(ctx, leader); err != nil {
		in.t.Fatal(err)
	}
}

// waitForTurn begins to wait for a ticket that another one is before. turn releases that
// one, and checks that the wait ends then, and not before.
func (in *installation) waitForTurn(cnapi string) (turn func()) {
	in.t.Helper()
	var tickets [2]struct{ UUID string }
	for i := range tickets {
		if err := call(in.t.Context(), http.MethodPost, cnapi+"/servers/default/tickets", object{
			"scope": "test", "id": "killed", "expires_at": time.Now().Add(10 * time.Minute).UTC().Format(time.RFC3339),
		}, &tickets[i]); err != nil {
			in.t.Fatal(err)
		}
	}
	address := strings.TrimPrefix(cnapi, "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		in.t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /tickets/%s/wait HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", tickets[1].UUID, address)
	return func() {
		in.t.Helper()
		defer conn.Close()
		var before, after struct{ Status string }
		if err := call(in.t.Context(), http.MethodGet, cnapi+"/tickets/"+tickets[1].UUID, nil, &before); err != nil || before.Status != "queued" {
			in.t.Errorf("%s: the second ticket is %q, want queued (%v)", in.step, before.Status, err)
		}
		in.must(http.MethodPut, cnapi+"/tickets/"+tickets[0].UUID+"/release", nil)
		_ = conn.SetReadDeadline(time.Now().Add(patience)) // a connection that is broken fails the read
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusNoContent {
			in.t.Fatalf("%s: the wait for a ticket: %v, %v", in.step, answer, err)
		}
		if err := call(in.t.Context(), http.MethodGet, cnapi+"/tickets/"+tickets[1].UUID, nil, &after); err != nil || after.Status != "active" {
			in.t.Errorf("%s: it is %q after its wait, want active (%v)", in.step, after.Status, err)
		}
		in.must(http.MethodPut, cnapi+"/tickets/"+tickets[1].UUID+"/release", nil)
	}
}
