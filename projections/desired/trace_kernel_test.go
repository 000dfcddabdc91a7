package desired_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/desired"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// kernelOf is the view of a kernel that has all that its query asks for.
func kernelOf(t *desired.Trace, k *desired.TraceKernel) *desired.KernelView {
	end := &t.From
	if k.NIC == t.To.NIC {
		end = &t.To
	}
	peer := true
	return &desired.KernelView{
		NIC: k.NIC, Namespace: end.VM.String(),
		Links: []desired.KernelLink{
			{Role: desired.RoleVM, Name: "fabric0", Kind: "veth", MAC: k.NIC, MTU: 1400, Up: true},
			{Role: desired.RoleHost, Name: "port0", Kind: "veth", MTU: 1400, Up: true, Master: "br10v0"},
			{Role: desired.RoleBridge, Name: "br10v0", Kind: "bridge", Up: true},
			{Role: desired.RoleVXLAN, Name: "sdcvxl10", Kind: "vxlan", Up: true},
		},
		Addresses: []netip.Prefix{netip.PrefixFrom(end.IP, 24)},
		Neighbour: &desired.KernelNeigh{MAC: k.Query.MAC, State: "permanent"},
		Forward:   &desired.KernelForward{VTEP: k.Query.VTEP},
		Security: desired.KernelSecurity{
			Mode: desired.SecurityEnforced, Peer: &peer,
			Rules: &desired.KernelRules{Port: "port0", MAC: k.NIC, Addresses: []netip.Addr{end.IP}},
		},
		Drops: map[string]uint64{}, Underlay: map[string]uint64{},
	}
}

// tapped makes of a view that of a NIC with a tap: nothing of the guest is in it.
func tapped(v *desired.KernelView) {
	v.Links = v.Links[1:]
	v.Links[0].Role, v.Links[0].Name, v.Links[0].Kind = desired.RoleTap, "rt1", "tun"
	v.Namespace, v.Addresses, v.Neighbour, v.Security.Rules.Port = "", nil, nil, "rt1"
}

// Each difference of the first kernel from the log is made in a fabric that is well, and
// must be named.
func TestTraceOfKernels(t *testing.T) {
	for _, c := range []struct {
		name    string
		spoil   func(first, v *desired.KernelView) // first: the look before, as v
		verdict string
		code    string // "": no fault and no doubt
		text    string // part of a finding
	}{
		{"well", func(_, _ *desired.KernelView) {}, desired.Reachable, "", ""},
		{"no link", func(_, v *desired.KernelView) { v.Links = v.Links[1:] }, desired.Unreachable, "kernel-link", "has no fabric link with the MAC"},
		{"no VXLAN device", func(_, v *desired.KernelView) { v.Links = v.Links[:3] }, desired.Unreachable, "kernel-vxlan", "has no VXLAN device of vnet 10"},
		{"link down", func(_, v *desired.KernelView) { v.Links[1].Up = false }, desired.Unreachable, "kernel-link-down", "the link port0 (host end)"},
		{"no host end", func(_, v *desired.KernelView) { v.Links = slices.Delete(v.Links, 1, 3) }, desired.Unreachable, "kernel-host-end", "the other end of fabric0"},
		{"in no bridge", func(_, v *desired.KernelView) { v.Links[1].Master = "" }, desired.Unreachable, "kernel-bridge", "is in no bridge"},
		{"another MAC", func(_, v *desired.KernelView) { v.Links[0].MAC = log.MAC{2, 5: 9} }, desired.Unreachable, "kernel-mac", "has the MAC 02:00:00:00:00:09, and the NIC"},
		{"MTU", func(_, v *desired.KernelView) { v.Links[0].MTU = 9000 }, desired.Doubtful, "kernel-mtu", "is 9000, and of the network 1400"},
		{"no address", func(_, v *desired.KernelView) { v.Addresses = nil }, desired.Unreachable, "kernel-address", "has not the address"},
		{"no neighbour", func(_, v *desired.KernelView) { v.Neighbour = nil }, desired.Unreachable, "kernel-neighbour", "is missing"},
		{"neighbour that failed", func(_, v *desired.KernelView) { v.Neighbour = &desired.KernelNeigh{State: "failed"} }, desired.Unreachable, "kernel-neighbour-failed", "is failed: it has no MAC"},
		{"another neighbour", func(_, v *desired.KernelView) { v.Neighbour.MAC = log.MAC{2, 5: 9} }, desired.Unreachable, "kernel-neighbour-mac", "is 02:00:00:00:00:09, and the log has"},
		{"on demand", func(_, v *desired.KernelView) { v.OnDemand, v.Neighbour, v.Forward = true, nil, nil }, desired.Reachable, "", "is asked for with the first packet"},
		{"no forwarding entry", func(_, v *desired.KernelView) { v.Forward = nil }, desired.Unreachable, "kernel-forward", "is missing"},
		{"another VTEP", func(_, v *desired.KernelView) { v.Forward.VTEP = netip.MustParseAddr("192.0.2.9") }, desired.Unreachable, "kernel-forward-vtep", "leads to 192.0.2.9"},
		{"unread", func(_, v *desired.KernelView) {
			v.Links, v.Neighbour, v.Forward, v.Security.Rules, v.Unknown = nil, nil, nil, nil, []string{"namespace z: it is a FIFO"}
		}, desired.Reachable, "", "this is not known: namespace z: it is a FIFO"},
		{"not a peer", func(_, v *desired.KernelView) { *v.Security.Peer = false }, desired.Unreachable, "kernel-peer", "does not take VXLAN packets of vnet 10 from"},
		{"no rules", func(_, v *desired.KernelView) { v.Security.Rules = nil }, desired.Unreachable, "kernel-rules", "has no rules"},
		{"rules of another address", func(_, v *desired.KernelView) {
			v.Security.Rules.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.99")}
		}, desired.Unreachable, "kernel-rules-address", "its own address"},
		{"rules of another MAC", func(_, v *desired.KernelView) { v.Security.Rules.MAC = log.MAC{2, 5: 9} }, desired.Unreachable, "kernel-rules-mac", "let through the MAC 02:00:00:00:00:09 only"},
		{"rules that allow more", func(_, v *desired.KernelView) { v.Security.Rules.Relaxed = []string{"allow_ip_spoofing"} }, desired.Doubtful, "kernel-rules-relaxed", "allow allow_ip_spoofing, and the log allows nothing more"},
		{"unsupported", func(_, v *desired.KernelView) {
			v.Security = desired.KernelSecurity{Mode: desired.SecurityUnsupported, Why: "no nf_tables"}
		}, desired.Doubtful, "kernel-security", "no nf_tables"},
		{"off", func(_, v *desired.KernelView) { v.Security = desired.KernelSecurity{Mode: desired.SecurityOff} }, desired.Reachable, "", "runs without port security"},
		{"drops that rise", func(first, v *desired.KernelView) { first.Drops["ip"], v.Drops["ip"] = 3, 15 }, desired.Doubtful, "kernel-drops", "rose by 12: the VM sends from an address that is not its"},
		{"drops of before", func(first, v *desired.KernelView) { first.Drops["ip"], v.Drops["ip"] = 3, 3 }, desired.Reachable, "", "3 packets were dropped at the port"},
		{"strangers on the underlay", func(first, v *desired.KernelView) { v.Underlay["peer"] = 2 }, desired.Doubtful, "kernel-underlay-drops", "rose by 2: VXLAN packets come from a sender that is no peer"},
		{"tap", func(_, v *desired.KernelView) { tapped(v) }, desired.Reachable, "", ""},
		{"tap that is closed", func(_, v *desired.KernelView) { tapped(v); v.Links[0].Closed = true }, desired.Unreachable, "kernel-tap-closed", "no program has the tap rt1"},
		{"tap that is down", func(_, v *desired.KernelView) { tapped(v); v.Links[0].Up = false }, desired.Unreachable, "kernel-link-down", "the link rt1 (tap)"},
		{"tap in no bridge", func(_, v *desired.KernelView) { tapped(v); v.Links[0].Master = "" }, desired.Unreachable, "kernel-bridge", "rt1 on"},
		{"tap with another MTU", func(_, v *desired.KernelView) { tapped(v); v.Links[0].MTU = 1500 }, desired.Doubtful, "kernel-mtu", "is 1500, and of the network 1400"},
		{"drops of a link", func(first, v *desired.KernelView) { v.Links[3].TxDropped = 4 }, desired.Doubtful, "kernel-lost", "tx_dropped of sdcvxl10 on"},
		{"a counter that began anew", func(first, v *desired.KernelView) { first.Drops["ip"], v.Drops["ip"] = 9, 1 }, desired.Reachable, "", "1 packets were dropped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := worldtest.Settled(t, rules.Decide)
			for _, op := range []string{`update network #31# {"mtu": 1400}`, `update server #11# {"status": "running"}`, `update server #12# {"status": "running"}`} {
				w.Must(op)
			}
			got := desired.NewTrace(w.State, changetest.UUID(21).String(), changetest.UUID(22).String())
			got.Judge(ready)
			asked := got.Kernels()
			if len(asked) != 2 || asked[0].Query.VTEP != got.To.Under || asked[1].Query.IP != got.From.IP {
				t.Fatalf("asked: %+v", asked)
			}
			for i := range asked {
				first, last := kernelOf(&got, &asked[i]), kernelOf(&got, &asked[i])
				if i == 0 {
					c.spoil(first, last)
				}
				asked[i].Between(first, last)
			}
			got.JudgeKernels(asked)
			var codes []string
			found := c.text == ""
			for _, f := range got.Findings {
				if f.Level != desired.Note {
					codes = append(codes, f.Code)
				}
				found = found || strings.Contains(f.Text, c.text)
			}
			if got.Verdict != c.verdict || !found || c.code == "" && codes != nil || c.code != "" && !slices.Equal(codes, []string{c.code}) {
				t.Errorf("%s: %s, with %v; want %s with %q and %q\n%+v", got.Verdict, got.Summary, codes, c.verdict, c.code, c.text, got.Findings)
			}
			if whole := strings.Contains(got.Summary, "and they have it"); whole != (c.verdict == desired.Reachable && c.name != "unread") {
				t.Errorf("summary: %s", got.Summary)
			}
		})
	}
}

// A verdict of both kernels is asked for: a kernel that is not known, or in part, or that
// was not asked, is a doubt. A kernel that is known takes nothing from the verdict.
func TestTraceRequiresKernels(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(k *desired.TraceKernel)
		code  string
	}{
		"known":    {func(*desired.TraceKernel) {}, ""},
		"silent":   {func(k *desired.TraceKernel) { k.View, k.Unknown = nil, "no answer" }, "kernel-unknown"},
		"in part":  {func(k *desired.TraceKernel) { k.View.Unknown = []string{"namespace z"} }, "kernel-part-unknown"},
		"no watch": {func(k *desired.TraceKernel) { k.Unknown = "too slow" }, ""},
	} {
		w := worldtest.Settled(t, rules.Decide)
		for _, op := range []string{`update network #31# {"mtu": 1400}`, `update server #11# {"status": "running"}`, `update server #12# {"status": "running"}`} {
			w.Must(op)
		}
		got := desired.NewTrace(w.State, changetest.UUID(21).String(), changetest.UUID(22).String())
		got.Judge(ready)
		asked := got.Kernels()
		for i := range asked {
			asked[i].View = kernelOf(&got, &asked[i])
		}
		c.spoil(&asked[1])
		got.JudgeKernels(asked)
		if got.Verdict != desired.Reachable {
			t.Errorf("%s: %s without the need of kernels", name, got.Verdict)
		}
		got.RequireKernels()
		at := slices.IndexFunc(got.Findings, func(f desired.Finding) bool { return f.Level == desired.Doubt })
		switch {
		case c.code == "" && (got.Verdict != desired.Reachable || at >= 0):
			t.Errorf("%s: %s, %+v", name, got.Verdict, got.Findings)
		case c.code != "" && (got.Verdict != desired.Doubtful || at < 0 || got.Findings[at].Code != c.code):
			t.Errorf("%s: %s, %+v; want %s", name, got.Verdict, got.Findings, c.code)
		}
		got.KernelsAsked = nil
		if got.RequireKernels(); got.Verdict != desired.Doubtful || !slices.ContainsFunc(got.Findings, func(f desired.Finding) bool { return f.Code == "kernel-not-asked" }) {
			t.Errorf("%s: %s without an asked kernel, %+v", name, got.Verdict, got.Findings)
		}
	}
}

// A CN that does not answer is not known, and takes nothing from the verdict of the log.
func TestTraceOfSilentKernel(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	got := desired.NewTrace(w.State, changetest.UUID(21).String(), changetest.UUID(22).String())
	before := got.Verdict
	asked := got.Kernels()
	for i := range asked {
		asked[i].Unknown = "CN x does not answer"
	}
	got.JudgeKernels(asked)
	if got.Verdict != before || !slices.ContainsFunc(got.Findings, func(f desired.Finding) bool {
		return f.Code == "kernel-unknown" && strings.Contains(f.Text, "is not known: CN x does not answer")
	}) {
		t.Errorf("%s, before %s: %+v", got.Verdict, before, got.Findings)
	}
}

func TestKernelQueryPath(t *testing.T) {
	for _, q := range []desired.KernelQuery{
		{NIC: log.MAC{2}, MAC: log.MAC{3}},
		{NIC: log.MAC{2}, MAC: log.MAC{3}, IP: netip.MustParseAddr("fd00::1"), VTEP: netip.MustParseAddr("10.0.0.1")},
	} {
		if got, is, err := desired.ParseKernelQuery(q.Path()); got != q || !is || err != nil {
			t.Errorf("%s: %+v, %t, %v", q.Path(), got, is, err)
		}
	}
	for path, want := range map[string]bool{"/vmms": false, "/kernel/": true, "/kernel/x/y/-/-": true, "/kernel/02:00:00:00:00:01/02:00:00:00:00:01/1/-": true} {
		if _, is, err := desired.ParseKernelQuery(path); is != want || is && err == nil {
			t.Errorf("%s: %t, %v", path, is, err)
		}
	}
}

// TestTraceOfKernelsOfTwoVNets: that nodes are no peers is a fault only of a vnet that both
// NICs are on.
func TestTraceOfKernelsOfTwoVNets(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	for _, other := range []bool{false, true} {
		got := desired.NewTrace(w.State, changetest.UUID(21).String(), changetest.UUID(22).String())
		if other {
			got.To.VNet++
		}
		asked := got.Kernels()
		for i := range asked {
			asked[i].View = kernelOf(&got, &asked[i])
			*asked[i].View.Security.Peer = false
		}
		got.JudgeKernels(asked)
		if has := slices.ContainsFunc(got.Findings, func(f desired.Finding) bool { return f.Code == "kernel-peer" }); has == other {
			t.Errorf("on two vnets: %v, kernel-peer: %v: %+v", other, has, got.Findings)
		}
	}
}
