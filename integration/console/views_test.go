package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/agentsim"
	"rutter/integration/rig"
)

// looks are how the views of this file are looked at.
var looks = []struct {
	name          string
	width, height int64
	dark          bool
}{{"light", 1280, 860, false}, {"dark", 1280, 860, true}, {"narrow", 360, 780, false}}

// each opens a view in each look, waits until it shows what it must, checks that it fits and
// that axe-core finds nothing serious, and keeps a picture. act, if not "", is done on the
// page before.
func each(t *testing.T, b *Browser, ctx context.Context, server, name, view, shown, act, then string) {
	t.Helper()
	for i, l := range looks {
		if err := b.Look(ctx, l.width, l.height, l.dark); err != nil {
			t.Fatal(err)
		}
		open(t, b, ctx, server, fmt.Sprintf("?%s%d%s", name, i, view))
		await(t, b, ctx, shown)
		if act != "" {
			textOf(t, b, ctx, act)
			await(t, b, ctx, then)
		}
		shot(t, b, ctx, name+"-"+l.name)
		if wide := textOf(t, b, ctx, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide != "0" {
			t.Errorf("%s, %s: the page is %s px wider than the window", name, l.name, wide)
		}
		var found []string
		text := textOf(t, b, ctx, "(() => {"+axe+"; return window.axe.run(document, {resultTypes: ['violations']}).then((r) => JSON.stringify(r.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical').map((v) => v.id + ': ' + v.nodes.slice(0, 3).map((n) => n.target.join(' ') + ' ' + (n.any[0] || n.all[0] || n.none[0] || {}).message).join(' | '))))})()")
		if err := json.Unmarshal([]byte(text), &found); err != nil || len(found) > 0 {
			t.Errorf("%s, %s: %v %s", name, l.name, err, strings.Join(found, "\n"))
		}
	}
	if unnamed, err := b.Unnamed(ctx); err != nil || len(unnamed) > 0 {
		t.Errorf("%s: controls without a name: %v, %v", name, unnamed, err)
	}
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("%s: the page complains: %q", name, problems)
	}
	if err := b.Look(ctx, 1280, 860, false); err != nil {
		t.Fatal(err)
	}
}

// lived is true when a view says that it is live.
const lived = "document.querySelector('.fresh.live')"

// A trace between two NICs is shown hop by hop, and what stops it stands at its place.
func TestTraceOnThePage(t *testing.T) {
	b, ctx := browser(t)
	api, server := dev(t, ctx)
	network := first(t, ctx, api, "/networks", url.Values{"name": {"blue"}})
	nics, err := api.List(ctx, "/nics", url.Values{"network_uuid": {fmt.Sprint(network["uuid"])}, "belongs_to_type": {"zone"}})
	if err != nil || len(nics) < 2 {
		t.Fatal(len(nics), err)
	}
	from, to := nics[0], nics[1]
	for _, n := range nics { // on another compute node
		if n["cn_uuid"] != from["cn_uuid"] {
			to = n
		}
	}
	settled(t, ctx, api, from["mac"], to["mac"])
	view := fmt.Sprintf("#/vnets/%v?from=%v&to=%v", network["vnet_id"], from["mac"], to["mac"])
	hops := "[...document.querySelectorAll('.hop')].map((h) => h.dataset.hop).join()"
	// Right after the start the nodes have not applied the demo yet, and a trace says so.
	open(t, b, ctx, server, "#/vnets")
	await(t, b, ctx, "main.innerText.includes('12 links programmed')")
	each(t, b, ctx, server, "trace", view, hops+" === 'from-vm,from-port,from-cn,underlay,to-cn,to-port,to-vm' && document.querySelector('.verdict.reachable') && !document.querySelector('.stop') && "+lived, "", "")
	textOf(t, b, ctx, "document.querySelectorAll('button.copy')[1].click()")
	await(t, b, ctx, fmt.Sprintf("document.querySelector('.card code.command').innerText.startsWith('rutter trace %v %v --server')", from["mac"], to["mac"]))
	// A VM that does not run stops it at its end, and the page says so when it is asked again.
	if _, err := api.Update(ctx, "/vms/"+fmt.Sprint(to["belongs_to_uuid"]), []byte(`{"state":"stopped","zone_state":"stopped"}`), ""); err != nil {
		t.Fatal(err)
	}
	textOf(t, b, ctx, "document.querySelector('input[name=from]').form.requestSubmit()")
	await(t, b, ctx, "document.querySelector('.stop')?.dataset.hop === 'to-vm' && document.querySelector('.stop').innerText.includes('It stops here') && document.querySelector('.stop li code').innerText === 'vm-not-running' && document.querySelector('.verdict.unreachable')")
	shot(t, b, ctx, "trace-stops")
	// The end without a way is the first: what comes after is not reached.
	textOf(t, b, ctx, fmt.Sprintf("(() => { const f = document.querySelector('input[name=from]'), to = document.querySelector('input[name=to]'); f.value = %q; to.value = %q; f.form.requestSubmit(); })()", to["mac"], from["mac"]))
	await(t, b, ctx, "document.querySelector('.stop')?.dataset.hop === 'from-vm' && document.querySelectorAll('.hop.beyond').length > 4")
}

// settled waits until a trace between two ends has nothing against it: the compute nodes of
// a cluster that has just begun are behind, and then unsure of their first digests.
func settled(t *testing.T, ctx context.Context, api *client.Client, from, to any) {
	t.Helper()
	var got client.Object
	for ctx.Err() == nil {
		var err error
		if got, err = api.Get(ctx, "/trace", url.Values{"from": {fmt.Sprint(from)}, "to": {fmt.Sprint(to)}}); err != nil {
			t.Fatal(err)
		}
		if got["verdict"] == "reachable" {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("the trace stays as %v", got["summary"])
}

// The page of a compute node has what servers know, and on demand what it says of itself.
func TestNodePage(t *testing.T) {
	b, ctx := browser(t)
	api, server := dev(t, ctx)
	cn := first(t, ctx, api, "/servers", nil)
	id := fmt.Sprint(cn["uuid"])
	vm := first(t, ctx, api, "/vms", url.Values{"server_uuid": {id}})
	alias, err := json.Marshal(map[string]string{"alias": hostile + unseen})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Update(ctx, "/vms/"+fmt.Sprint(vm["uuid"]), alias, ""); err != nil {
		t.Fatal(err)
	}
	shown := "main.innerText.includes('connected') && main.innerText.includes('up to date') && [...main.querySelectorAll('.badge')].some((x) => x.innerText === 'programmed') && main.innerText.includes('The log has no certificate') && [...main.querySelectorAll('caption')].some((c) => c.innerText.startsWith('What its kernel is to have for the NICs of the vnet, 1 to')) && main.innerText.includes('a neighbour entry and a forwarding entry') && " + lived
	each(t, b, ctx, server, "node", "#/cns/"+id, shown, "document.querySelector('button[name=ask]').click()", "main.innerText.includes('by the clock of the node') && main.innerText.includes('matches the log') && main.innerText.includes('feature version')")
	if got := textOf(t, b, ctx, "[window.pwned, document.getElementById('bold'), main.querySelectorAll('img, script, b').length].join()"); got != ",,0" {
		t.Errorf("markup of an alias came alive: %s", got)
	}
	await(t, b, ctx, `main.innerText.includes('<img src=x onerror') && main.innerText.includes('a\\u202eb')`)
	if out := copied(t, b, ctx); !strings.Contains(out, id) || !strings.Contains(out, "port_security") {
		t.Errorf("the command prints otherwise: %.500s", out)
	}
	// Its simulated kernel cannot be read: that is said, and nothing else is spoilt.
	textOf(t, b, ctx, "[...main.querySelectorAll('button')].find((x) => x.innerText === 'Ask the kernel').click()")
	await(t, b, ctx, "main.innerText.includes('this agent programs no kernel that can be read') && main.innerText.includes('NICs, 1 to')")
	// A node that no agent speaks for.
	if _, err := api.Create(ctx, "/servers", []byte(`{"uuid":"00000000-0000-4000-8000-0000000000c1","hostname":"cn-away"}`)); err != nil {
		t.Fatal(err)
	}
	open(t, b, ctx, server, "#/cns/cn-away")
	await(t, b, ctx, "main.innerText.includes('nothing is known of its kernel')")
	textOf(t, b, ctx, "document.querySelector('button[name=ask]').click()")
	await(t, b, ctx, "main.querySelector('.notice')?.innerText.includes('no server has a session of it')")
	shot(t, b, ctx, "node-away")
}

// Lists have names, filters of the server and all pages; an object says who set what and
// what refers to it.
func TestObjectsPages(t *testing.T) {
	b, ctx := browser(t)
	api, server := dev(t, ctx)
	network := first(t, ctx, api, "/networks", url.Values{"name": {"blue"}})
	uuid := fmt.Sprint(network["uuid"])
	ops := make([]string, 0, 250)
	for i := range 250 {
		ops = append(ops, fmt.Sprintf(`{"action":"create","kind":"nic_tag","object":{"name":"many%03d"}}`, i))
	}
	if _, err := api.Create(ctx, "/changes", []byte(`{"ops":[`+strings.Join(ops, ",")+`]}`)); err != nil {
		t.Fatal(err)
	}
	each(t, b, ctx, server, "objects", "#/objects?kind=nic&network_uuid="+uuid, "main.querySelectorAll('tbody tr').length > 3 && [...main.querySelectorAll('tbody tr')].every((r) => r.innerText.includes('blue')) && main.querySelector('.chips li') && "+lived, "", "")
	if out := copied(t, b, ctx); !strings.Contains(out, uuid) || strings.Count(out, "\n") != len(strings.Split(strings.TrimSpace(textOf(t, b, ctx, "[...main.querySelectorAll('tbody tr')].map((r) => 1).join('\\n')")), "\n"))+1 {
		t.Errorf("the command prints otherwise: %s", out)
	}
	// The filter is one that the server has, and is chosen by hand.
	open(t, b, ctx, server, "?filter#/objects?kind=nic_tag")
	await(t, b, ctx, "main.querySelector('caption').innerText.includes('1 to 100 of 25') && [...main.querySelectorAll('select[name=field] option')].some((o) => o.value === 'mtu')")
	further := "[...main.querySelectorAll('button')].find((x) => x.innerText === 'Further')"
	textOf(t, b, ctx, further+".click()")
	await(t, b, ctx, "main.querySelector('caption').innerText.includes('101 to 200')")
	textOf(t, b, ctx, further+".click()")
	await(t, b, ctx, "main.querySelector('caption').innerText.includes('201 to 25') && main.innerText.includes('many249') && "+further+".disabled")
	each(t, b, ctx, server, "object", "#/object/network/"+uuid, "main.innerText.includes('What refers to it') && main.innerText.includes('NICs on it') && main.innerText.includes('Set by') && main.querySelector('.diff') && "+lived, "", "")
	if out := copied(t, b, ctx); !strings.Contains(out, uuid) {
		t.Errorf("the command prints otherwise: %s", out)
	}
	// It is live: a change is there without a reload, with who made it.
	if _, err := api.Update(ctx, "/networks/"+uuid, []byte(`{"name":"azure"}`), ""); err != nil {
		t.Fatal(err)
	}
	await(t, b, ctx, "main.querySelector('h2').innerText.includes('azure') && main.innerText.includes('History, the newest first, 2')")
}

// A page that was left holds no connection: a browser has six of them to a server, and a
// seventh page in the same tab is there as soon as the first.
func TestLeftPagesHoldNothing(t *testing.T) {
	b, ctx := browser(t)
	c := rig.Cluster(t, bench.Options{Program: rutter, Servers: 1})
	for i := range 9 {
		bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
		open(t, b, bounded, c.Servers[0].URL, fmt.Sprintf("?%d#/objects", i))
		await(t, b, bounded, "main.querySelector('caption') && "+lived)
		cancel()
	}
	// One comes back, and reads on.
	textOf(t, b, ctx, "(setTimeout(() => history.back(), 0), 1)")
	for ctx.Err() == nil { // a question fails while the page changes
		if at, err := b.Text(ctx, "location.search"); err == nil && at == "?7" {
			break
		}
	}
	if _, err := c.Client.Create(ctx, "/nic_tags", []byte(`{"name":"after_coming_back"}`)); err != nil {
		t.Fatal(err)
	}
	await(t, b, ctx, "rutter.counts().head > 0 && "+lived)
}

// The picture of a vnet is in one window with 1, 20 and many compute nodes that follow real
// servers: 200 here, and 1,000 with RUTTER_LONG=1. A node that is away is not known.
func TestVNetOfManyNodes(t *testing.T) {
	many := 200
	if os.Getenv("RUTTER_LONG") != "" {
		many = 1000
	}
	for _, nodes := range []int{1, 20, many} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) { vnetOf(t, nodes) })
	}
}

func vnetOf(t *testing.T, nodes int) {
	b, ctx := browser(t)
	c := rig.Cluster(t, bench.Options{Program: rutter, Servers: 1})
	fleet := agentsim.New(agentsim.Config{Agents: nodes, Dialer: c.Client, Servers: c.Client.Servers(), First: func(int) int { return 0 }})
	stage := &agentsim.Scenario{Cluster: c, Fleet: fleet}
	following, stop := context.WithCancel(ctx)
	defer stop()
	err := bench.Streams(following, c, 1, func(submit []bench.Submit) error {
		stage.Submit = submit[0]
		if err := stage.Prepare(ctx); err != nil {
			return err
		}
		ended := make(chan struct{})
		go func() { defer close(ended); fleet.Run(following) }()
		defer func() { stop(); <-ended }()
		if err := fleet.AwaitLive(ctx, nodes); err != nil {
			return err
		}
		vnet := oneVNet(t, ctx, c.Client, nodes)
		server := c.Servers[0].URL
		map1 := fmt.Sprintf("document.querySelector('canvas')?.getAttribute('aria-label').startsWith('Map of %d of %d compute nodes on vnet %s: 0 failing, 0 not known, 0 behind, %d programmed')", nodes, nodes, vnet, nodes)
		begin := time.Now()
		open(t, b, ctx, server, "#/vnets/"+vnet)
		await(t, b, ctx, map1)
		t.Logf("the picture of %d nodes is there after %s", nodes, time.Since(begin).Round(time.Millisecond))
		each(t, b, ctx, server, fmt.Sprintf("vnet-%d", nodes), "#/vnets/"+vnet, map1+" && "+lived,
			"(document.querySelector('canvas').focus(), document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: 'End', bubbles: true})))", "document.querySelector('[data-node] table tbody tr')")
		if tall := textOf(t, b, ctx, "document.querySelector('canvas').clientHeight <= 500"); tall != "true" {
			t.Errorf("the picture of %d nodes does not fit into the window", nodes)
		}
		if out := copied(t, b, ctx); !strings.Contains(out, fmt.Sprintf("on %d compute nodes", nodes)) {
			t.Errorf("the command prints otherwise: %.300s", out)
		}
		begin = time.Now()
		if _, err := c.Client.Create(ctx, "/networks", networkOn(vnet)); err != nil {
			return err
		}
		await(t, b, ctx, "main.innerText.includes('added-later')")
		t.Logf("a change of the vnet of %d nodes is shown after %s", nodes, time.Since(begin).Round(time.Millisecond))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// tenant owns the networks of these tests.
const tenant = "5b1ad5e5-0000-4000-8000-000000000001"

// networkOn is a fabric network of a vnet.
func networkOn(vnet string) []byte {
	return fmt.Appendf(nil, `{"name":"added-later","nic_tag":"fabric","fabric":true,"vnet_id":%s,"vlan_id":9,"subnet":"10.9.0.0/16","owner_uuids":[%q]}`, vnet, tenant)
}

// oneVNet writes a vnet with a NIC on each compute node of a fleet, with names of others'
// choice among them, and returns its number.
func oneVNet(t *testing.T, ctx context.Context, api *client.Client, nodes int) string {
	t.Helper()
	const vnet, atOnce = "5", 100
	const underlay, blue = "5b1ad5e5-0000-4000-8000-00000000000a", "5b1ad5e5-0000-4000-8000-00000000000b"
	ops := []string{
		`{"action":"create","kind":"nic_tag","object":{"name":"underlay"}}`,
		`{"action":"create","kind":"nic_tag","object":{"name":"fabric"}}`,
		fmt.Sprintf(`{"action":"create","kind":"network","object":{"uuid":%q,"name":"underlay","nic_tag":"underlay","subnet":"172.16.0.0/16"}}`, underlay),
		fmt.Sprintf(`{"action":"create","kind":"network","object":{"uuid":%q,"name":"blue","nic_tag":"fabric","fabric":true,"vnet_id":%s,"vlan_id":4,"subnet":"10.5.0.0/16","owner_uuids":[%q]}}`, blue, vnet, tenant),
	}
	write := func() {
		t.Helper()
		if _, err := api.Create(ctx, "/changes", []byte(`{"ops":[`+strings.Join(ops, ",")+`]}`)); err != nil {
			t.Fatal(err)
		}
		ops = nil
	}
	write()
	for i := range nodes {
		cn, name := agentsim.CN(i), fmt.Sprintf("rack%d-cn%03d", i/100, i)
		if i%50 == 7 {
			name = fmt.Sprintf("<b>%d", i)
		}
		place := fmt.Sprintf("%d.%d", i/250, i%250+2)
		mac := fmt.Sprintf("%02x:%02x", i/250, i%250)
		vm := fmt.Sprintf("5b1ad5e5-0000-4000-8001-%012d", i)
		ops = append(ops,
			fmt.Sprintf(`{"action":"create","kind":"server","object":{"uuid":%q,"hostname":%q,"datacenter":"dc%d"}}`, cn, name, i%3),
			fmt.Sprintf(`{"action":"create","kind":"nic","object":{"mac":"02:00:00:01:%s","belongs_to_type":"server","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q,"network_uuid":%q,"ip":"172.16.%s","underlay":true}}`, mac, cn, tenant, cn, underlay, place),
			fmt.Sprintf(`{"action":"create","kind":"vm","object":{"uuid":%q,"alias":"vm%d","owner_uuid":%q,"server_uuid":%q,"state":"running","zone_state":"running"}}`, vm, i, tenant, cn),
			fmt.Sprintf(`{"action":"create","kind":"nic","object":{"mac":"02:00:00:02:%s","belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q,"network_uuid":%q,"ip":"10.5.%s"}}`, mac, vm, tenant, cn, blue, place))
		if len(ops) >= 4*atOnce || i == nodes-1 {
			write()
		}
	}
	return vnet
}
