// Package vmsource declares the one interface between a compute node and what runs its
// VMs: a folder of manifests, another vminfod, programs that register VMs, a hypervisor.
//
// A Source lists and watches VMs: it tells a Sink. A VM is its JSON (package vmdoc), in
// vminfod's form: uuid, alias, owner_uuid, zonename, state, pid, max_physical_memory,
// exit_status and nics. A NIC is attached to a VM by being in nics, and detached by being
// there no more; its field attach (vmdoc.Attach) says where its link ends: in the network
// namespace of the VM's zonename, or at a tap device. Where the source starts and stops
// VMs too, it is Controlled.
//
// A node has several sources at once. Each VM is of exactly one: a Put of a VM that
// another source has is ErrDuplicate, and the source puts it aside with that reason until
// the other lets it go. A source that dies, or that cannot see its VMs (Status.Complete is
// false), takes nothing away: what it reported last stays.
//
// A source that reads VMs from a channel:
//
//	type events struct{ in chan vmdoc.VM }
//
//	func (e events) Name() string { return "events" }
//	func (e events) Scan()        {} // nothing is missed
//	func (e events) Status() vmsource.Status {
//		return vmsource.Status{Name: "events", State: "reading", Complete: true}
//	}
//	func (e events) Run(ctx context.Context, sink vmsource.Sink) error {
//		sink.Loaded()
//		for {
//			select {
//			case vm := <-e.in:
//				if _, _, err := sink.Put(vm); err != nil {
//					return err // the service runs it again
//				}
//			case <-ctx.Done():
//				return nil
//			}
//		}
//	}
//
// DESIGN.md has the rules that a real one keeps.
package vmsource
