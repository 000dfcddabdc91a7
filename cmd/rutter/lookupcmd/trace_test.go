package lookupcmd

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"rutter/log"
	"rutter/projections/desired"
)

// The text of a trace: the verdict, the log, the kernels, and what was found.
// RUTTER_WRITE=1 writes testdata/trace.txt anew.
func TestPrintTrace(t *testing.T) {
	cn := func(n byte) log.UUID { return log.UUID{15: n} }
	yes, peer := true, true
	addr := netip.MustParseAddr
	tr := desired.Trace{
		Verdict: desired.Unreachable, Summary: "web1 and db1 cannot reach each other: the neighbour for 10.0.0.6 on CN cn1 is missing",
		From:    desired.TraceEnd{Asked: "web1", Alias: "web1", State: "running", NIC: log.MAC{2, 5: 1}, IP: addr("10.0.0.5"), Name: "blue", VNet: 5, MTU: 1400, CN: cn(1), Host: "cn1", Under: addr("192.0.2.1")},
		To:      desired.TraceEnd{Asked: "db1", Alias: "db1", State: "running", NIC: log.MAC{2, 5: 2}, IP: addr("10.0.0.6"), Name: "blue", VNet: 5, MTU: 1400, CN: cn(2), Host: "cn2", Under: addr("192.0.2.2")},
		Entries: []desired.TraceEntry{{CN: cn(1), What: "neighbour 10.0.0.6 is 02:00:00:00:00:02", Seq: 7, Wanted: true, Programmed: &yes}},
		KernelsAsked: []desired.TraceKernel{
			{CN: cn(1), NIC: log.MAC{2, 5: 1}, View: &desired.KernelView{
				NIC: log.MAC{2, 5: 1}, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24")},
				Links: []desired.KernelLink{
					{Role: desired.RoleVM, Name: "fabric0", Kind: "veth", MTU: 1400, Up: true},
					{Role: desired.RoleHost, Name: "port0", Kind: "veth", MTU: 1400, Master: "br5v0"},
				},
				Forward:  &desired.KernelForward{VTEP: addr("192.0.2.2"), Port: 4790},
				Security: desired.KernelSecurity{Mode: desired.SecurityEnforced, Peer: &peer, Rules: &desired.KernelRules{Port: "port0", MAC: log.MAC{2, 5: 1}, Addresses: []netip.Addr{addr("10.0.0.5")}, Relaxed: []string{"allow_dhcp_spoofing"}}},
				Drops:    map[string]uint64{"ip": 15, "mac": 0}, Underlay: map[string]uint64{"peer": 2},
				Unknown: []string{"drops: no answer"},
			}, Moved: []desired.TraceCounter{{What: "fabric0 tx_packets", Rose: 13}, {What: "drops at the port, ip", Rose: 12, Reason: "ip"}}},
			{CN: cn(2), NIC: log.MAC{2, 5: 2}, Unknown: "CN x does not answer"},
		},
		Findings: []desired.Finding{{Level: desired.Fault, Code: "kernel-neighbour", Text: "the neighbour for 10.0.0.6 on CN cn1 is missing", Remedy: "rutter agent status on the node"}},
	}
	for range 20 {
		k := &tr.KernelsAsked[0]
		k.Moved = append(k.Moved, desired.TraceCounter{What: "port0 rx_packets", Rose: 1})
	}
	var out strings.Builder
	printTrace(&out, &tr)
	path := filepath.Join("testdata", "trace.txt")
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(path, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || out.String() != string(want) {
		t.Errorf("%v: printed\n%s", err, out.String())
	}
}

// A NIC with a tap: what its guest has is not said to be missing.
func TestPrintKernelOfATap(t *testing.T) {
	k := &desired.TraceKernel{View: &desired.KernelView{
		Links: []desired.KernelLink{
			{Role: desired.RoleTap, Name: "rt1", Kind: "tun", MTU: 1400, Up: true, Master: "br5v0", Closed: true},
			{Role: desired.RoleBridge, Name: "br5v0", Kind: "bridge", MTU: 1450, Up: true},
		},
	}}
	got := strings.Join(kernelLines(k, &desired.TraceEnd{IP: netip.MustParseAddr("10.0.0.6"), CN: k.CN}), "\n")
	want := "rt1 (tap): up, MTU 1400, in br5v0, no program has it open\nbr5v0 (bridge): up, MTU 1450\n"
	if !strings.HasPrefix(got+"\n", want) || strings.Contains(got, "neighbour") || strings.Contains(got, "addresses") {
		t.Errorf("got\n%s", got)
	}
}

// The exit code of each verdict is that of the page.
func TestTraceExitCodes(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "trace.md"))
	if err != nil {
		t.Fatal(err)
	}
	for verdict, want := range map[string]int{desired.Reachable: 0, desired.Unreachable: 1, desired.Doubtful: 3, desired.Routed: 3} {
		if got := exitCode(verdict); got != want {
			t.Errorf("%s: %d, want %d", verdict, got, want)
		}
		row := ""
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "| `") && strings.Contains(line, "`"+verdict+"`") && row == "" {
				row = line
			}
		}
		if !strings.Contains(row, "| "+strconv.Itoa(want)+" |") {
			t.Errorf("%s is in docs/trace.md as %q, want exit code %d", verdict, row, want)
		}
	}
}

// --live asks the kernels as they are now, and nothing else.
func TestTraceLiveExcludes(t *testing.T) {
	for _, args := range [][]string{{"--at", "5"}, {"--data", "."}, {"--no-kernels"}} {
		app := &cli.App{Writer: io.Discard, ErrWriter: io.Discard, Commands: []*cli.Command{TraceCommand(nil)}, ExitErrHandler: func(*cli.Context, error) {}}
		err := app.Run(append(append([]string{"rutter", "trace", "--live"}, args...), "a", "b"))
		if want := "--live and " + args[0] + " exclude each other"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
