package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// promise is one line of docs/promises.md.
type promise struct {
	source string // who promises it, a page of docs/spec
	what   string
	// tests hold it on real processes, as FOLDER.NAME from the module's root.
	tests []string
}

var promises = []promise{
	{"RFD 28", "a node's own NICs and aggregations stand in the log, of the server, as the node has them", []string{"integration.TestNetAgent"}},
	{"RFD 28", "what the log says of a node's own NICs is never pushed down to it", []string{"integration.TestNetAgent"}},
	{"RFD 28", "a NIC that a VM has and the log does not is registered, with its network, node and state", []string{"integration.TestNetAgent"}},
	{"RFD 28", "a VM's state, owner and node go to its NICs; its primary NIC is the log's", []string{"integration.TestNetAgent"}},
	{"RFD 28", "what may be spoofed, gateway, resolvers, routes and MTU go from the log to VMs that run", []string{"integration.TestNetAgent", "integration.TestVMSideFollowsTheLog"}},
	{"RFD 28", "routers reach the routes of VMs that run, and so do their changes and their end", []string{"integration.TestPromises"}},
	{"RFD 28", "a NIC that is deleted in the log goes from its VM, which is rebooted; one that belongs to another VM goes too", []string{"integration.TestNetAgent"}},
	{"RFD 28", "a VM that is made or moved is not touched", []string{"integration.TestNetAgent", "integration.TestVMSideFollowsTheLog"}},
	{"RFD 28", "VMAPI refuses fields that are the network's, and says where to change them; a NIC's addresses are taken", []string{"integration.TestNetAgent"}},
	{"RFD 28", "servers and agents that come and go cost a bounded number of reports", []string{"integration.TestNetAgent"}},
	{"RFD 39", "vminfod shows what really runs, and each change of it is an event, whoever made it", []string{"integration.TestVMState", "agent/vminfo/manifests.TestFolderSystem"}},
	{"RFD 39", "each VM has the fields that SmartOS always shows, from its first event on, and its exit status after its end", []string{"integration.TestNetAgent", "agent/vminfo/manifests.TestFolderExits", "agent/vminfo/manifests.TestForms"}},
	{"RFD 39", "the stream begins with all VMs, and has no gap after that", []string{"integration.TestNetAgent", "agent/vminfo.TestHTTPReadyLine", "agent/vminfo.TestHTTPResume"}},
	{"RFD 39", "a change is told as diff.js tells it", []string{"agent/vminfo/vmdoc.TestDiffVectors", "integration/arch.TestVectorsAreTheSame", "integration.TestLocalDoors"}},
	{"RFD 39", "what events miss, a scan finds, and names", []string{"integration.TestLocalDoors", "agent/vminfo/manifests.TestFolderScan"}},
	{"RFD 39", "programs of old vminfods follow a new one, and the other way round", []string{"integration.TestVMState"}},
	{"CNAPI, HA", "any server takes a node's start and sysinfo, and all have it", []string{"integration.TestHeartbeatsFailOver", "integration.TestNetAgent"}},
	{"CNAPI, HA", "heartbeats that come to another server flip nothing, and repair what is unknown", []string{"integration.TestHeartbeatsFailOver"}},
	{"CNAPI, HA", "a node is running while it has a connection, and the death of the server that it is connected to flips no node's status", []string{"integration.TestPromises"}},
	{"CNAPI, HA", "a node sends the full state of its VMs when it connects, and what changes after that", []string{"integration.TestVMState", "integration.TestAwayForAMonth"}},
	{"CNAPI, HA", "who follows the VMs of one node, or of all, gets each event once, over a server's death", []string{"integration.TestPromises"}},
	{"CNAPI, HA", "each task is handled once", []string{"integration/triton.TestTasksRunOnce"}},
	{"CNAPI, HA", "any server can start a task, and tell its state when the one that took it is dead", []string{"integration.TestTaskOutlivesItsServer", "integration.TestVMState"}},
	{"CNAPI, HA", "a node without a connection is reached at its address, by every server", []string{"integration.TestVMState"}},
	{"NAPI", "every server takes every write and answers every read, and a change of the leader loses none", []string{"integration/napi.TestEveryServer", "integration/napi.TestLeaderChange"}},
	{"NAPI", "listeners get what is written through any server, in order and once", []string{"integration/triton.TestClassicListeners", "integration/triton.TestKillAnyServer"}},
	{"NAPI", "a server that cannot serve a listener fails its probe; one that goes elsewhere is bootstrapped there", []string{"integration/triton.TestWithoutQuorum", "integration/triton.TestBootstrapElsewhere"}},
	{"SVP", "old clients get the answers that portolan gives, from any server, and no bad message ends a server", []string{"integration.TestOldClientsOfRealProcesses", "varp.TestVectorsServer", "varp.TestServerBadInput"}},
	{"SVP", "a shootdown is not lost over restarts, and no old mapping is served after it", []string{"integration.TestShootdownsOverRestarts", "varp.TestFreshAfterShootdown"}},
	{"SVP", "the daemon of a node outlives what its server and its links do", []string{"integration/standin.TestServerFailures", "integration/standin.TestLinkFailures", "integration/standin.TestHotLinks"}},
	{"SVP", "a VM moves, and what reached it there reaches it here", []string{"integration/vmmove.TestVMMovesUnderPings", "integration/standin.TestMovesUnderPings"}},
	{"SVP", "tunnel ends of IPv4 and IPv6 in one vnet: nodes of one family reach each other; between the two there is no way, and each node names the others", []string{"integration.TestPromises"}},
	{"SVP", "an agent that comes back after a month has the present state, though the log has let go of what came between", []string{"integration.TestAwayForAMonth"}},
	{"SVP", "nodes and servers whose certificates ended while they were away come back, revoked ones do not", []string{"integration/tls.TestAwayForLong"}},
	{"Omicron", "a VM's end is seen by every server at once, with its reason", []string{"integration.TestVMState"}},
	{"Omicron", "a VMM's state can be asked for while its ring is not answered (the first trap of the doorbell)", []string{"integration.TestPromises"}},
	{"Omicron", "a VMM's last state is kept until a server has recorded it (the second trap)", []string{"integration.TestPromises", "integration.TestVMState"}},
	{"Omicron", "what is older than the recorded generation changes nothing; only NO_SUCH_INSTANCE means gone", []string{"api/vmm.TestRing", "api/vmm.TestSweep", "integration.TestVMState"}},
}

const (
	promisesPage = "../../docs/promises.md"
	promisesMark = "<!-- promises -->\n"
)

// Each promise has tests, which exist, one of them where processes run; and a line of the
// table at the end of docs/promises.md.
func TestPromisesAreHeld(t *testing.T) {
	page, err := os.ReadFile(promisesPage)
	if err != nil {
		t.Fatal(err)
	}
	text, table, found := strings.Cut(string(page), promisesMark)
	if !found {
		t.Fatalf("docs/promises.md has no line %q", promisesMark)
	}
	var b strings.Builder
	b.WriteString("\n| source | what is promised | tests |\n|---|---|---|\n")
	for _, p := range promises {
		fmt.Fprintf(&b, "| %s | %s | `%s` |\n", p.source, p.what, strings.Join(p.tests, "`, `"))
		if !strings.Contains(text, "\n- "+p.source+": ") {
			t.Errorf("docs/promises.md does not say what %s is", p.source)
		}
		if !slices.ContainsFunc(p.tests, func(name string) bool { return strings.HasPrefix(name, "integration") }) {
			t.Errorf("no test with processes holds that %s", p.what)
		}
		for _, name := range p.tests {
			if !exists(t, name) {
				t.Errorf("%s: there is no %s", p.what, name)
			}
		}
	}
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(promisesPage, []byte(text+promisesMark+b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != b.String() {
		t.Error("the table at the end of docs/promises.md is not this one: RUTTER_WRITE=1 writes it anew")
	}
}
