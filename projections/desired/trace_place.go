package desired

import (
	"rutter/log"
	"rutter/projections"
)

// vmmRuns are the states of a VMM in which its guest may send packets.
var vmmRuns = map[string]bool{"running": true, "rebooting": true, "migrating": true}

// tracePlace compares the CN of a NIC with where its VM is: packets go to the NIC's CN,
// and arrive nowhere if the VM is on another one. end.nic is on a CN.
func tracePlace(s *projections.State, t *Trace, end *TraceEnd, vm *log.VM) {
	here, away := false, log.UUID{} // CNs on which a VMM of the VM runs
	for r := range s.VMMsOf(vm.UUID) {
		switch m := r.Object.(*log.VMM); {
		case !vmmRuns[m.State]:
		case m.SledID == end.nic.CNUUID:
			here = true
		default:
			away = m.SledID
		}
	}
	on := func(cn log.UUID) string {
		other := TraceEnd{CN: cn}
		fillCN(s, &other)
		return hostOf(other)
	}
	name, nicOn := end.Asked, on(end.nic.CNUUID)
	moves := func(from log.UUID) {
		t.find(Doubt, "vm-migrating", end.CN, "wait until it has moved: rutter log history vm "+vm.UUID.String(),
			"the VM %s moves between %s and %s, where its NIC %s is", name, on(from), nicOn, end.NIC)
	}
	switch {
	case here && !away.IsZero():
		moves(away)
	case !away.IsZero():
		t.find(Fault, "vmm-elsewhere", end.CN, "rutter nic update "+end.NIC.String()+" --set cn_uuid="+away.String()+", or move the VM",
			"NIC %s is on %s, and its VM %s runs on %s: packets go where it does not run", end.NIC, nicOn, name, on(away))
	case vm.ServerUUID == end.nic.CNUUID:
	case vm.ServerUUID.IsZero():
		t.find(Doubt, "vm-unplaced", end.CN, "rutter vm update "+vm.UUID.String()+" --set server_uuid=…",
			"the log does not say on which CN the VM %s is, and its NIC %s is on %s", name, end.NIC, nicOn)
	case here:
		moves(vm.ServerUUID)
	default:
		t.find(Fault, "nic-elsewhere", end.CN, "rutter nic update "+end.NIC.String()+" --set cn_uuid="+vm.ServerUUID.String()+", or move the VM",
			"NIC %s is on %s, and its VM %s on %s: packets go where it does not run", end.NIC, nicOn, name, on(vm.ServerUUID))
	}
}

// unwanted adds the entries that the log does not give to a CN, if no other cause says
// why: a trace without a cause needs all of them.
func (t *Trace) unwanted() {
	for _, f := range t.Findings {
		if f.Level == Fault {
			return
		}
	}
	for _, e := range t.Entries {
		zone := (t.From.CN != e.CN || t.From.nic.BelongsToType == "zone") && (t.To.CN != e.CN || t.To.nic.BelongsToType == "zone")
		if !e.Wanted && zone {
			t.find(Fault, "entry-absent", e.CN, "rutter log state --cn "+e.CN.String()+" has all that the CN is given", "the log does not give CN %s this: %s", e.CN, e.What)
		}
	}
}

// RequireKernels makes of a kernel that is not known, or in part, a doubt: the caller
// wants a verdict of both kernels. Call it after JudgeKernels, on the answer of a server
// too.
func (t *Trace) RequireKernels() {
	for i := range t.Findings {
		if f := &t.Findings[i]; f.Code == "kernel-unknown" || f.Code == "kernel-part-unknown" {
			f.Level = Doubt
		}
	}
	for _, end := range []*TraceEnd{&t.From, &t.To} {
		asked := false
		for i := range t.KernelsAsked {
			asked = asked || t.KernelsAsked[i].NIC == end.NIC
		}
		if !asked && !end.NIC.IsZero() {
			t.find(Doubt, "kernel-not-asked", end.CN, "look at the links of NIC "+end.NIC.String()+" on its machine",
				"the kernel of %s was not asked about %s: only NICs of VMs on fabrics are", hostOf(*end), end.Asked)
		}
	}
	*t = t.judged()
}
