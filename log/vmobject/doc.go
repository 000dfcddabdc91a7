// Package vmobject takes VMAPI's object of a VM, or vmadm's, apart into the log's VM, and
// puts it together again.
//
// It owns which fields of that object are fields of log.VM, which are in its properties,
// and which are in neither: those of NICs and their networks, which the log has
// elsewhere. It owns the defaults of the fields that VMAPI always shows, and how
// properties are cut to a bound. NICs, resolvers and routes are added by package
// api/triton/vmapi, which has the state.
//
// Concurrency: its functions have no state.
package vmobject
