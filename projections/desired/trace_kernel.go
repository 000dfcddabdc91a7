package desired

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
)

// TraceKernel is what the kernel of one end's CN has of the way to the other end.
type TraceKernel struct {
	CN    log.UUID    `json:"cn_uuid"`
	NIC   log.MAC     `json:"mac"` // of the end
	Query KernelQuery `json:"-"`
	// Unknown says why there is no View, or why nothing of Moved is known.
	Unknown string      `json:"unknown,omitempty"`
	View    *KernelView `json:"view,omitempty"` // the last one
	// Moved are the counters that rose between the two looks at the kernel.
	Moved []TraceCounter `json:"moved"`

	host string // of the CN, in words
	end  *TraceEnd
	to   *TraceEnd
}

// TraceCounter is a packet counter that rose.
type TraceCounter struct {
	What string `json:"what"` // as in "fabric0 tx_packets", "drops at the port, ip"
	Rose uint64 `json:"rose"` // packets
	Now  uint64 `json:"now"`
	// Reason is that of drops by rules, else "".
	Reason string `json:"reason,omitempty"`
	// Underlay: drops at the underlay of the node.
	Underlay bool `json:"underlay,omitempty"`
}

// Kernels returns what must be asked of the CNs of both ends: one TraceKernel for each
// NIC of a VM that is on a CN. They are answered by their View, or Unknown, and given to
// JudgeKernels.
func (t *Trace) Kernels() (asks []TraceKernel) {
	for _, pair := range [][2]*TraceEnd{{&t.From, &t.To}, {&t.To, &t.From}} {
		end, to := pair[0], pair[1]
		if end.nic == nil || end.net == nil || !end.net.Fabric || end.CN.IsZero() || end.nic.BelongsToType != "zone" || end.NIC == to.NIC && len(asks) > 0 {
			continue
		}
		q := KernelQuery{NIC: end.NIC, IP: to.IP, MAC: to.NIC}
		if end.CN != to.CN {
			q.VTEP = to.Under
		}
		asks = append(asks, TraceKernel{CN: end.CN, NIC: end.NIC, Query: q, host: hostOf(*end), end: end, to: to})
	}
	return asks
}

// Between sets View and Moved from two looks at the kernel.
func (k *TraceKernel) Between(first, last *KernelView) {
	k.View, k.Moved = last, nil
	if first == nil || last == nil {
		return
	}
	add := func(what, reason string, underlay bool, before, now uint64) {
		if now > before {
			k.Moved = append(k.Moved, TraceCounter{What: what, Rose: now - before, Now: now, Reason: reason, Underlay: underlay})
		}
	}
	for i := range last.Links {
		now := &last.Links[i]
		at := slices.IndexFunc(first.Links, func(l KernelLink) bool { return l.Role == now.Role && l.Name == now.Name })
		if at < 0 {
			continue
		}
		was := first.Links[at].counters()
		for j, c := range now.counters() {
			add(now.Name+" "+c.name, "", false, was[j].value, c.value)
		}
	}
	for _, reason := range sortedReasons(last.Drops) {
		add("drops at the port, "+reason, reason, false, first.Drops[reason], last.Drops[reason])
	}
	for _, reason := range sortedReasons(last.Underlay) {
		add("drops at the underlay, "+reason, reason, true, first.Underlay[reason], last.Underlay[reason])
	}
}

type linkCounter struct {
	name  string
	value uint64
	lost  bool // each is a packet that was lost
}

func (l *KernelLink) counters() [6]linkCounter {
	return [6]linkCounter{
		{"rx_packets", l.RxPackets, false},
		{"tx_packets", l.TxPackets, false},
		{"rx_errors", l.RxErrors, true},
		{"tx_errors", l.TxErrors, true},
		{"rx_dropped", l.RxDropped, true},
		{"tx_dropped", l.TxDropped, true},
	}
}

func sortedReasons(drops map[string]uint64) (names []string) {
	for name := range drops {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// JudgeKernels adds to a trace what the kernels of both CNs have, and what of that is
// not as the log wants it. kernels are those of t.Kernels, answered.
func (t *Trace) JudgeKernels(kernels []TraceKernel) {
	t.KernelsAsked = kernels
	for i := range kernels {
		k := &kernels[i]
		switch {
		case k.View == nil:
			t.find(Note, "kernel-unknown", k.CN, "rutter cn sessions, and the log of its agent", "what the kernel of %s has is not known: %s", k.host, k.Unknown)
			continue
		case k.Unknown != "":
			t.find(Note, "kernel-counters-unknown", k.CN, "", "which counters of %s move is not known: %s", k.host, k.Unknown)
		}
		for _, text := range k.View.Unknown {
			t.find(Note, "kernel-part-unknown", k.CN, "", "of the kernel of %s this is not known: %s", k.host, text)
		}
		j := &kernelJudge{Trace: t, k: k, v: k.View}
		j.links()
		j.entries()
		j.security()
		j.moved()
	}
	*t = t.judged()
}

// kernelJudge compares one view with what the log wants.
type kernelJudge struct {
	*Trace
	k *TraceKernel
	v *KernelView
}

func (j *kernelJudge) fault(code, remedy, format string, args ...any) {
	j.find(Fault, code, j.k.CN, remedy, format, args...)
}

func (j *kernelJudge) doubt(code, remedy, format string, args ...any) {
	j.find(Doubt, code, j.k.CN, remedy, format, args...)
}

const seeAgent = "rutter agent status on the node says what its agent does about it"

func (v *KernelView) link(role string) *KernelLink {
	for i := range v.Links {
		if v.Links[i].Role == role {
			return &v.Links[i]
		}
	}
	return nil
}

// links looks at the links from the VM to the underlay. What could not be read is not
// missing.
func (j *kernelJudge) links() {
	whole := len(j.v.Unknown) == 0
	vm, tap := j.v.link(RoleVM), j.v.link(RoleTap)
	if vm == nil && tap == nil && whole {
		j.fault("kernel-link", seeAgent, "%s has no fabric link with the MAC %s in the namespace %q of its VM", j.k.host, j.k.NIC, j.v.Namespace)
	}
	if j.v.link(RoleVXLAN) == nil && whole {
		j.fault("kernel-vxlan", seeAgent, "%s has no VXLAN device of vnet %d", j.k.host, j.k.end.VNet)
	}
	for i := range j.v.Links {
		if l := &j.v.Links[i]; !l.Up {
			j.fault("kernel-link-down", seeAgent, "the link %s (%s) on %s is down", l.Name, l.Role, j.k.host)
		}
	}
	if tap != nil {
		j.tap(tap)
	}
	if vm == nil {
		return
	}
	if vm.MAC != j.k.NIC && !j.k.end.nic.AllowMACSpoofing {
		j.fault("kernel-mac", "its root can give it the MAC back: ip link set "+vm.Name+" address "+j.k.NIC.String(), "%s on %s has the MAC %s, and the NIC %s", vm.Name, j.k.host, vm.MAC, j.k.NIC)
	}
	host := j.v.link(RoleHost)
	switch {
	case vm.Kind == "veth" && host == nil && whole:
		j.fault("kernel-host-end", seeAgent, "the other end of %s is not on %s", vm.Name, j.k.host)
	case host != nil && host.Master == "":
		j.fault("kernel-bridge", seeAgent, "%s on %s is in no bridge", host.Name, j.k.host)
	}
	if vm.MTU > j.k.end.MTU {
		j.doubt("kernel-mtu", seeAgent, "the MTU of %s on %s is %d, and of the network %d", vm.Name, j.k.host, vm.MTU, j.k.end.MTU)
	}
	has := func(p netip.Prefix) bool { return p.Addr() == j.k.end.IP }
	if j.k.end.IP.IsValid() && whole && !slices.ContainsFunc(j.v.Addresses, has) {
		j.fault("kernel-address", seeAgent, "%s on %s has not the address %s", vm.Name, j.k.host, j.k.end.IP)
	}
}

// tap looks at the tap of a NIC. Its other end, with its addresses, routes and neighbours,
// is in the guest, which no kernel of a node shows.
func (j *kernelJudge) tap(l *KernelLink) {
	if l.Master == "" {
		j.fault("kernel-bridge", seeAgent, "%s on %s is in no bridge", l.Name, j.k.host)
	}
	if l.Closed {
		j.fault("kernel-tap-closed", "start the VM, and see the log of its hypervisor", "no program has the tap %s on %s open: the VM does not run, or its hypervisor has not opened it", l.Name, j.k.host)
	}
	if l.MTU > j.k.end.MTU {
		j.doubt("kernel-mtu", seeAgent, "the MTU of %s on %s is %d, and of the network %d", l.Name, j.k.host, l.MTU, j.k.end.MTU)
	}
}

// entries looks at the neighbour and the forwarding entry for the other end.
func (j *kernelJudge) entries() {
	k, to := j.k, j.k.to
	if to.nic == nil || k.end.Network != to.Network || len(j.v.Unknown) > 0 {
		return
	}
	vm, vxlan := j.v.link(RoleVM), j.v.link(RoleVXLAN)
	if n := j.v.Neighbour; vm != nil && to.IP.IsValid() {
		switch {
		case (n == nil || n.MAC.IsZero()) && j.v.OnDemand:
			j.find(Note, "kernel-neighbour-asked", k.CN, "", "the neighbour for %s on %s is asked for with the first packet: vnet %d is on demand there", to.IP, k.host, k.end.VNet)
		case n == nil:
			j.fault("kernel-neighbour", seeAgent, "the neighbour for %s on %s is missing", to.IP, k.host)
		case n.MAC.IsZero():
			j.fault("kernel-neighbour-failed", seeAgent, "the neighbour for %s on %s is %s: it has no MAC", to.IP, k.host, n.State)
		case n.MAC != to.NIC:
			j.fault("kernel-neighbour-mac", seeAgent, "the neighbour for %s on %s is %s, and the log has %s", to.IP, k.host, n.MAC, to.NIC)
		}
	}
	if f := j.v.Forward; vxlan != nil && k.Query.VTEP.IsValid() {
		switch {
		case f == nil && j.v.OnDemand:
			j.find(Note, "kernel-forward-asked", k.CN, "", "the forwarding entry for %s on %s is asked for with the first packet: vnet %d is on demand there", to.NIC, k.host, k.end.VNet)
		case f == nil:
			j.fault("kernel-forward", seeAgent, "the forwarding entry of %s for %s on %s is missing", vxlan.Name, to.NIC, k.host)
		case f.VTEP != k.Query.VTEP:
			j.fault("kernel-forward-vtep", seeAgent, "the forwarding entry of %s for %s on %s leads to %s, and the log has %s", vxlan.Name, to.NIC, k.host, f.VTEP, k.Query.VTEP)
		}
	}
}

// security compares the rules of the port with what the log says of the NIC.
func (j *kernelJudge) security() {
	k, s := j.k, &j.v.Security
	switch s.Mode {
	case SecurityEnforced:
	case SecurityUnsupported:
		j.doubt("kernel-security", "rutter agent status on the node says why", "%s cannot hold the rules of port security: %s", k.host, cmp.Or(s.Why, "its agent says not why"))
		return
	default:
		j.find(Note, "kernel-security-off", k.CN, "rutter agent --port-security on", "%s runs without port security%s", k.host, because(s.Why))
		return
	}
	if s.Peer != nil && !*s.Peer && k.end.VNet == k.to.VNet { // nodes of different vnets need not be peers
		j.fault("kernel-peer", seeAgent, "%s does not take VXLAN packets of vnet %d from %s", k.host, k.end.VNet, k.Query.VTEP)
	}
	r := s.Rules
	if r == nil {
		if len(j.v.Unknown) == 0 {
			j.fault("kernel-rules", seeAgent, "the port of %s on %s has no rules", k.NIC, k.host)
		}
		return
	}
	want := SecurityOf(k.end.nic).Relaxed()
	if !slices.Equal(r.Relaxed, want) {
		j.doubt("kernel-rules-relaxed", seeAgent, "the rules of %s on %s allow %s, and the log allows %s", r.Port, k.host, listed(r.Relaxed), listed(want))
	}
	if r.MAC != k.NIC && !slices.Contains(r.Relaxed, "allow_mac_spoofing") {
		j.fault("kernel-rules-mac", seeAgent, "the rules of %s on %s let through the MAC %s only, and the NIC has %s", r.Port, k.host, r.MAC, k.NIC)
	}
	if ip := k.end.IP; ip.IsValid() && !slices.Contains(r.Addresses, ip) && !slices.Contains(r.Relaxed, "allow_ip_spoofing") {
		j.fault("kernel-rules-address", seeAgent, "the rules of %s on %s do not let through %s, its own address", r.Port, k.host, ip)
	}
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func listed(names []string) string {
	if len(names) == 0 {
		return "nothing more"
	}
	return strings.Join(names, ", ")
}

// dropReasons say what a VM does whose frames are dropped at its port for a reason.
var dropReasons = map[string]string{
	"mac":      "the VM sends from a MAC that is not its",
	"ip":       "the VM sends from an address that is not its",
	"arp":      "the VM says in ARP that it has an address that is not its",
	"nd":       "the VM says in neighbour discovery that it has an address that is not its",
	"dhcp":     "the VM answers as a DHCP server, which allow_dhcp_spoofing would let it",
	"router":   "the VM sends router advertisements or redirects",
	"protocol": "the VM sends another protocol than IPv4, IPv6 and ARP, which allow_restricted_traffic would let it",
	"rate":     "the VM asks the node for more than a port may",
}

// underlayReasons say the same of packets at the underlay.
var underlayReasons = map[string]string{
	"peer":      "VXLAN packets come from a sender that is no peer of their vnet",
	"interface": "VXLAN packets come by another interface than the underlay's",
}

// moved says which counters of lost packets rose.
func (j *kernelJudge) moved() {
	for _, c := range j.k.Moved {
		switch {
		case c.Underlay:
			j.doubt("kernel-underlay-drops", "rutter agent status on the node", "drops of reason %s at the underlay of %s rose by %d: %s", c.Reason, j.k.host, c.Rose, cmp.Or(underlayReasons[c.Reason], "its agent knows the reason"))
		case c.Reason != "":
			j.doubt("kernel-drops", "rutter agent ports on the node has all counts; the NIC's allow_* relax the rules", "drops of reason %s at the port of %s on %s rose by %d: %s", c.Reason, j.k.NIC, j.k.host, c.Rose, cmp.Or(dropReasons[c.Reason], "its agent knows the reason"))
		}
	}
	for i := range j.v.Links {
		l := &j.v.Links[i]
		for _, c := range l.counters() {
			at := slices.IndexFunc(j.k.Moved, func(m TraceCounter) bool { return m.What == l.Name+" "+c.name })
			if c.lost && at >= 0 {
				j.doubt("kernel-lost", "", "%s of %s on %s rose by %d", c.name, l.Name, j.k.host, j.k.Moved[at].Rose)
			}
		}
	}
	for _, reason := range sortedReasons(j.v.Drops) {
		if n := j.v.Drops[reason]; n > 0 && !slices.ContainsFunc(j.k.Moved, func(c TraceCounter) bool { return c.Reason == reason && !c.Underlay }) {
			j.find(Note, "kernel-dropped", j.k.CN, "", "%d packets were dropped at the port of %s on %s for the reason %s, and none while this looked", n, j.k.NIC, j.k.host, reason)
		}
	}
}

// Bound cuts what a CN answered to the bounds of a view, and texts to printable ones. It
// trusts none of the values.
func (v *KernelView) Bound(printable func(text string, most int) string) {
	cut := func(text *string) { *text = printable(*text, MaxKernelText) }
	cut(&v.Namespace)
	v.Links = v.Links[:min(len(v.Links), MaxKernelLinks)]
	for i := range v.Links {
		l := &v.Links[i]
		for _, text := range []*string{&l.Role, &l.Name, &l.Kind, &l.Master} {
			cut(text)
		}
	}
	v.Addresses = v.Addresses[:min(len(v.Addresses), MaxKernelAddresses)]
	v.Unknown = v.Unknown[:min(len(v.Unknown), MaxKernelUnknown)]
	for i := range v.Unknown {
		cut(&v.Unknown[i])
	}
	if v.Neighbour != nil {
		cut(&v.Neighbour.State)
	}
	cut(&v.Security.Mode)
	cut(&v.Security.Why)
	if r := v.Security.Rules; r != nil {
		cut(&r.Port)
		r.Addresses = r.Addresses[:min(len(r.Addresses), MaxKernelAddresses)]
		r.Relaxed = r.Relaxed[:min(len(r.Relaxed), MaxKernelReasons)]
		for i := range r.Relaxed {
			cut(&r.Relaxed[i])
		}
	}
	v.Drops, v.Underlay = boundReasons(v.Drops, printable), boundReasons(v.Underlay, printable)
}

func boundReasons(drops map[string]uint64, printable func(string, int) string) map[string]uint64 {
	bounded := make(map[string]uint64)
	for _, name := range sortedReasons(drops) {
		if len(bounded) < MaxKernelReasons {
			bounded[printable(name, MaxKernelText)] += drops[name]
		}
	}
	return bounded
}

// String names a counter with what it rose by.
func (c TraceCounter) String() string { return fmt.Sprintf("%s +%d (%d)", c.What, c.Rose, c.Now) }
