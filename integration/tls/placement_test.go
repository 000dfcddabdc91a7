package tls

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/log"
)

// What a node that lies knows or guesses of VMs that others have been given.
const (
	plannedVM, plannedMAC = "5595d88c-6e4d-4bda-b58e-97dd02e30011", "90:b8:d0:77:66:11" // a NIC, and no VM yet
	looseVM, looseMAC     = "5595d88c-6e4d-4bda-b58e-97dd02e30012", "90:b8:d0:77:66:12" // the same, on no node
	laterVM, laterVMM     = "5595d88c-6e4d-4bda-b58e-97dd02e30013", "6695d88c-6e4d-4bda-b58e-97dd02e30013"
	taskVM, ownVM         = "5595d88c-6e4d-4bda-b58e-97dd02e30014", "5595d88c-6e4d-4bda-b58e-97dd02e30015"
	publicNet             = "0e70de36-a40b-4ac0-9429-819f5ff82031" // not a fabric; both nodes are on it
)

// placing is a lying compute node and the operator.
type placing struct {
	*world
	node, operator asker
}

// testPlacement: with one compute node's certificate, none of what others have been given
// is taken, and what a real node does is accepted. The node is that of testOthers.
func testPlacement(t *testing.T, w *world) {
	node, err := log.ParseUUID(ourNode)
	w.must(err)
	w.issue("lying-node", matrix.Identity{Role: matrix.CN, UUID: node}, pki.Life)
	p := &placing{w, w.asker("lying-node"), w.asker("ada")}
	p.furnish()
	for _, part := range []struct {
		name string
		run  func(*placing, *testing.T)
	}{
		{"NICs and VMs of others", (*placing).takes},
		{"a VMM before its VM", (*placing).captures},
		{"the gateway", (*placing).gateway},
		{"reports", (*placing).reports},
		{"what a node learns", (*placing).learns},
		{"what a node does", (*placing).works},
	} {
		t.Run(part.name, func(t *testing.T) {
			in := &placing{w.in(t), w.in(t).asker("lying-node"), w.in(t).asker("ada")}
			part.run(in, t)
		})
	}
}

// furnish makes what is there before, by the operator.
func (p *placing) furnish() {
	p.t.Helper()
	// The cluster has agreed on the feature version when it knows the field.
	for deadline := time.Now().Add(finishPatience); ; time.Sleep(50 * time.Millisecond) {
		status, _, text := p.operator.ask(http.MethodPut, "/networks/"+ourNet, `{"self_provision": "off"}`)
		if status == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("self_provision: %d %s", status, text)
		}
	}
	for _, o := range [][2]string{
		{"/nic_tags", `{"name": "under"}`},
		{"/nic_tags", `{"name": "public"}`},
		{"/networks", `{"uuid": "0e70de36-a40b-4ac0-9429-819f5ff82030", "name": "under", "nic_tag": "under", "vlan_id": 0, "subnet": "192.0.2.0/24", "provision_start_ip": "192.0.2.1", "provision_end_ip": "192.0.2.9"}`},
		{"/networks", `{"uuid": "` + publicNet + `", "name": "public", "nic_tag": "public", "vlan_id": 0, "subnet": "198.51.100.0/24", "gateway": "198.51.100.1", "provision_start_ip": "198.51.100.1", "provision_end_ip": "198.51.100.99"}`},
		{"/nics", underlay("90:b8:d0:00:00:01", ourNode, "192.0.2.1")},
		{"/nics", underlay("90:b8:d0:00:00:02", theirNode, "192.0.2.2")},
		{"/nics", nic("90:b8:d0:00:00:03", ourVM, ourOwner, ourNode, publicNet, "198.51.100.10")},
		{"/nics", nic(plannedMAC, plannedVM, theirOwner, theirNode, theirNet, "10.77.66.11")},
		{"/nics", `{"mac": "` + looseMAC + `", "belongs_to_type": "zone", "belongs_to_uuid": "` + looseVM + `", "owner_uuid": "` + theirOwner + `", "network_uuid": "` + publicNet + `", "ip": "198.51.100.12", "state": "stopped"}`},
	} {
		_, err := p.api.Raw(p.t.Context(), http.MethodPost, o[0], []byte(o[1]))
		p.must(err)
	}
	awaitObject(p.operator, "/nics/"+looseMAC)
}

func underlay(mac, node, ip string) string {
	return fmt.Sprintf(`{"mac": %q, "belongs_to_type": "server", "belongs_to_uuid": %q, "owner_uuid": %q, "network_uuid": "0e70de36-a40b-4ac0-9429-819f5ff82030", "ip": %q, "state": "running", "underlay": true}`,
		mac, node, ourOwner, ip)
}

func vmOn(uuid, node string) string {
	return fmt.Sprintf(`{"uuid": %q, "owner_uuid": %q, "server_uuid": %q, "state": "running"}`, uuid, ourOwner, node)
}

// refused asks as the node, and complains unless the answer is a 403.
func (p *placing) refused(method, path, body string) string {
	p.t.Helper()
	status, _, text := p.node.ask(method, path, body)
	if status != http.StatusForbidden {
		p.t.Errorf("%s %s %s: %d, want 403: %s", method, path, body, status, text)
	}
	return text
}

// accepted asks as one, and ends the test unless it is done.
func (p *placing) accepted(as asker, method, path, body string) string {
	p.t.Helper()
	status, _, text := as.ask(method, path, body)
	if status/100 != 2 {
		p.t.Fatalf("%s %s %s: %d: %s", method, path, body, status, text)
	}
	return text
}

// takes: the node makes a VM of which others' NICs are there, then takes the NICs.
func (p *placing) takes(t *testing.T) {
	for _, c := range [][2]string{{plannedVM, plannedMAC}, {looseVM, looseMAC}} {
		p.refused(http.MethodPost, "/vms", vmOn(c[0], ourNode))
		p.refused(http.MethodPut, "/nics/"+c[1], `{"cn_uuid": "`+ourNode+`"}`)
		p.refused(http.MethodPost, "/changes", `{"ops": [{"action": "create", "kind": "vm", "object": `+vmOn(c[0], ourNode)+`}, {"action": "update", "kind": "nic", "id": "`+c[1]+`", "object": {"cn_uuid": "`+ourNode+`"}}]}`)
		if status, _, text := p.operator.ask(http.MethodGet, "/vms/"+c[0], ""); status != http.StatusNotFound {
			t.Errorf("VM %s is there: %s", c[0], text)
		}
	}
	p.refused(http.MethodPut, "/nics/"+theirMAC, `{"cn_uuid": "`+ourNode+`"}`)
	p.refused(http.MethodPost, "/vms/"+theirVM, `{"server_uuid": "`+ourNode+`"}`)
	text := p.accepted(p.operator, http.MethodGet, "/lookup/vl2?vnet=7654321&mac="+plannedMAC, "")
	if !strings.Contains(text, "192.0.2.2") {
		t.Errorf("the NIC of the VM to come is at %s", text)
	}
}

// captures: the node makes a VMM, an operator then the VM elsewhere.
func (p *placing) captures(t *testing.T) {
	p.refused(http.MethodPost, "/vmms", `{"id": "`+laterVMM+`", "instance_id": "`+laterVM+`", "sled_id": "`+ourNode+`", "state": "running", "gen": 1}`)
	p.accepted(p.operator, http.MethodPost, "/vms", vmOn(laterVM, theirNode))
	p.refused(http.MethodPost, "/vms/"+laterVM, `{"server_uuid": "`+ourNode+`"}`)
	if text := p.accepted(p.operator, http.MethodGet, "/vms/"+laterVM, ""); !strings.Contains(text, theirNode) {
		t.Errorf("the VM is not where it was made: %s", text)
	}
}

// gateway: the node gives NICs of its VM, and of itself, the gateways' addresses.
func (p *placing) gateway(t *testing.T) {
	p.accepted(p.operator, http.MethodPut, "/networks/"+ourNet, `{"gateway": "10.21.12.20"}`)
	take := nic("90:b8:d0:00:00:21", ourVM, ourOwner, ourNode, ourNet, "10.21.12.20")
	p.refused(http.MethodPost, "/nics", take)
	p.accepted(p.operator, http.MethodPut, "/networks/"+ourNet, `{"self_provision": "joined"}`)
	for _, body := range []string{
		take, nic("90:b8:d0:00:00:21", ourVM, ourOwner, ourNode, ourNet, "10.21.12.251"),
		nic("90:b8:d0:00:00:21", ourVM, ourOwner, ourNode, publicNet, "198.51.100.1"),
		`{"mac": "90:b8:d0:00:00:21", "belongs_to_type": "server", "belongs_to_uuid": "` + ourNode + `", "owner_uuid": "` + ourOwner + `", "network_uuid": "` + publicNet + `", "ip": "198.51.100.1", "state": "running"}`,
	} {
		if status, _, text := p.node.ask(http.MethodPost, "/nics", body); status != http.StatusUnprocessableEntity || !strings.Contains(text, "provision range") {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	p.accepted(p.node, http.MethodPost, "/nics", nic("90:b8:d0:00:00:21", ourVM, ourOwner, ourNode, ourNet, "10.21.12.21"))
}

// reports: CNAPI's and net-agent's forms of reports are no way around.
func (p *placing) reports(t *testing.T) {
	for _, vm := range []string{plannedVM, "5595d88c-6e4d-4bda-b58e-97dd02e30016"} { // one after the other
		p.accepted(p.node, http.MethodPost, "/cnapi/servers/"+ourNode+"/events/status", `{"vms": {"`+vm+`": {"owner_uuid": "`+ourOwner+`", "state": "running"}}}`)
	}
	awaitObject(p.operator, "/vms/5595d88c-6e4d-4bda-b58e-97dd02e30016")
	if status, _, text := p.operator.ask(http.MethodGet, "/vms/"+plannedVM, ""); status != http.StatusNotFound {
		t.Errorf("a status report made VM %s: %s", plannedVM, text)
	}
	look := `{"incarnation": 1, "counter": 1, "look": ["` + theirMAC + `", "` + ourMAC + `", "90:b8:d0:00:00:99"], "networks": ["under"]}`
	text := p.accepted(p.node, http.MethodPost, "/reports/"+ourNode, look)
	p.noneOfTheirs("a report that looks at NICs", look, text)
	if !strings.Contains(text, ourMAC) {
		t.Errorf("its own NIC is not in %s", text)
	}
}

// learns: the answers are the same for what is another's and for what is not there.
func (p *placing) learns(t *testing.T) {
	const gone, mac = "0e70de36-a40b-4ac0-9429-819f5ff82099", "90:b8:d0:00:00:31"
	first := ""
	for i, body := range []string{
		nic(mac, ourVM, ourOwner, ourNode, gone, "10.77.66.30"), nic(mac, ourVM, ourOwner, ourNode, theirNet, "10.77.66.30"),
		nic(mac, ourVM, ourOwner, ourNode, theirNet, theirIP), nic(mac, ourVM, ourOwner, ourNode, theirNet, "192.0.2.77"),
		nic(mac, theirVM, ourOwner, ourNode, publicNet, "198.51.100.30"), nic(mac, "5595d88c-6e4d-4bda-b58e-97dd02e30099", ourOwner, ourNode, publicNet, "198.51.100.30"),
		nic(theirMAC, ourVM, ourOwner, ourNode, publicNet, "198.51.100.30"),
		`{"mac": "` + mac + `", "belongs_to_type": "server", "belongs_to_uuid": "` + ourNode + `", "owner_uuid": "` + ourOwner + `", "nic_tag": "overlay/7654321", "vlan_id": 4, "ip": "10.77.66.30", "state": "running"}`,
		`{"mac": "` + mac + `", "belongs_to_type": "server", "belongs_to_uuid": "` + ourNode + `", "owner_uuid": "` + ourOwner + `", "nic_tag": "overlay/7654321", "vlan_id": 4, "ip": "10.78.66.30", "state": "running"}`,
	} {
		text := strings.ReplaceAll(p.refused(http.MethodPost, "/nics", body), theirMAC, mac)
		if first == "" {
			first = text
		}
		if text != first {
			t.Errorf("answer %d is %s\nthe first: %s", i, text, first)
		}
	}
}

// works: what a real node does, and the VM that a task makes.
func (p *placing) works(t *testing.T) {
	p.accepted(p.node, http.MethodPost, "/vms", vmOn(ownVM, ourNode))
	p.accepted(p.node, http.MethodPost, "/nics", nic("90:b8:d0:00:00:41", ownVM, ourOwner, ourNode, publicNet, "198.51.100.41"))
	p.accepted(p.node, http.MethodPut, "/nics/90:b8:d0:00:00:41", `{"state": "stopped"}`)
	p.accepted(p.operator, http.MethodPost, "/nics", `{"mac": "90:b8:d0:00:00:42", "belongs_to_type": "zone", "belongs_to_uuid": "`+taskVM+`", "owner_uuid": "`+ourOwner+`", "network_uuid": "`+publicNet+`", "ip": "198.51.100.42", "state": "stopped"}`)
	p.refused(http.MethodPost, "/vms", vmOn(taskVM, ourNode))
	p.accepted(p.operator, http.MethodPost, "/cnapi/servers/"+ourNode+"/vms", `{"uuid": "`+taskVM+`", "owner_uuid": "`+ourOwner+`", "brand": "lx"}`)
	p.accepted(p.node, http.MethodPost, "/vms", vmOn(taskVM, ourNode))
	p.accepted(p.node, http.MethodPut, "/nics/90:b8:d0:00:00:42", `{"cn_uuid": "`+ourNode+`"}`)
	// A migration: an operator makes the target's VMM, and the VM brings its NICs.
	p.accepted(p.operator, http.MethodPost, "/vmms", `{"id": "`+laterVMM+`", "instance_id": "`+theirVM+`", "sled_id": "`+ourNode+`", "state": "creating", "gen": 1}`)
	p.accepted(p.node, http.MethodPost, "/vms/"+theirVM, `{"server_uuid": "`+ourNode+`"}`)
	if text := p.accepted(p.operator, http.MethodGet, "/nics/"+theirMAC, ""); !strings.Contains(text, ourNode) {
		t.Errorf("the NIC of the VM that came is %s", text)
	}
}
