package registered

import (
	"net/netip"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// Registration is what a program says of one VM: the body of
// PUT /vmsource/{source}/vms/{uuid}. Of a VM that is registered already, what is left out
// stays as it was, NICs too: a NIC goes by DELETE .../nics/{key} only.
type Registration struct {
	Alias     string   `json:"alias,omitempty"`
	OwnerUUID log.UUID `json:"owner_uuid,omitzero"` // a new VM must have one
	// Zonename names the network namespace in /run/netns, for NICs that are attached to
	// one. "": the VM's UUID.
	Zonename string `json:"zonename,omitempty"`
	// State is running or stopped. "": running, of a new VM.
	State string `json:"state,omitempty"`
	// RunState is the word of the VM's program for what it does in State, such as paused. It
	// belongs to State: it goes with a registration that has State and no RunState.
	RunState string `json:"run_state,omitempty"`
	// PID is the process of the VM, shown while it runs. 0: unknown.
	PID   int    `json:"pid,omitempty"`
	RAM   uint64 `json:"ram,omitempty"` // MiB
	VCPUs uint32 `json:"vcpus,omitempty"`
	Brand string `json:"brand,omitempty"` // "": the source's name
	// ExitStatus is how it ended, shown while it is stopped; a signal's number is negative.
	ExitStatus *int `json:"exit_status,omitempty"`
	// Tags are shown as the VM's tags, at most MaxTags.
	Tags map[string]string `json:"tags,omitempty"`
	NICs []NIC             `json:"nics,omitempty"`
}

// NIC is one NIC of a Registration. The same VM and key always are the same NIC.
type NIC struct {
	// Key names the NIC in its VM, such as eth0: letters, digits, '.', '_', ':' and '-'.
	Key string `json:"key"`
	// Network is the UUID or the name of a network of the log. A network of which two have
	// the name must be named by its UUID. It may be left out with the MAC of a NIC of this
	// VM that the log has, and of a NIC that is registered already.
	Network string `json:"network,omitempty"`
	// MAC is that of an existing NIC of this VM in the log, or the one that a new NIC is to
	// have. Zero: the log chooses.
	MAC log.MAC `json:"mac,omitzero"`
	// IPs are the addresses that the NIC is to have: at most one, because a NIC of the log
	// has one. None: the log chooses.
	IPs     []netip.Addr `json:"ips,omitempty"`
	Primary bool         `json:"primary,omitempty"` // one of a VM's; the first if none is
	// Attach is where its link ends; nil: in the namespace, under the agent's own name.
	Attach *vmdoc.Attach `json:"attach,omitempty"`
}

// The states of a registered VM.
const (
	StateRunning = "running"
	StateStopped = "stopped"
)

// VM is a registered VM: the answer of PUT and GET.
type VM struct {
	UUID log.UUID `json:"uuid"`
	// Source is that which has registered it.
	Source    string   `json:"source"`
	Alias     string   `json:"alias,omitempty"`
	OwnerUUID log.UUID `json:"owner_uuid"`
	Zonename  string   `json:"zonename"`
	State     string   `json:"state"`
	RunState  string   `json:"run_state,omitempty"`
	// Away: the VM's program has moved it to another node.
	Away bool       `json:"away,omitempty"`
	NICs []Attached `json:"nics"`
}

// NIC returns the NIC of that key, nil if the VM has none.
func (v *VM) NIC(key string) *Attached {
	for i := range v.NICs {
		if v.NICs[i].Key == key {
			return &v.NICs[i]
		}
	}
	return nil
}

// Attached is a NIC of a registered VM, with what its guest needs to know.
type Attached struct {
	Key         string         `json:"key"`
	MAC         log.MAC        `json:"mac"`
	NetworkUUID log.UUID       `json:"network_uuid"`
	Network     string         `json:"network"` // its name
	IPs         []netip.Prefix `json:"ips"`     // each with the length of its network's prefix
	Gateways    []netip.Addr   `json:"gateways"`
	Routes      []Route        `json:"routes"`
	Resolvers   []netip.Addr   `json:"resolvers"`
	MTU         uint32         `json:"mtu"` // bytes
	Primary     bool           `json:"primary"`
	Kind        string         `json:"kind"`   // vmdoc.AttachNamespace or vmdoc.AttachTap
	Device      string         `json:"device"` // name of the link; "": it is not there yet
	// State is NICAttached or NICWaiting, and Reason why it waits.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// Route is a route of the guest by its NIC beside that of the gateway.
type Route struct {
	Dst     netip.Prefix `json:"dst"`
	Gateway netip.Addr   `json:"gateway"`
}

// The states of a NIC of a registered VM.
const (
	NICAttached = "attached" // its link is in the node's kernel
	NICWaiting  = "waiting"
)

// The values of PUT's parameter wait. Its parameter within, in seconds, bounds the waiting
// of all three, also for servers.
const (
	WaitNone   = "none"   // until the log has the NICs
	WaitNode   = "node"   // until their links are in this node's kernel
	WaitFabric = "fabric" // until the kernels of all nodes that they concern have them
)

// The codes of an Error.
const (
	CodeInvalid  = "InvalidArgument" // 400: the request is wrong
	CodeUnknown  = "NotFound"        // 404: no such source, VM or NIC
	CodeOther    = "OtherSource"     // 409: another source has the VM
	CodeRefused  = "Refused"         // 409: the log refuses it
	CodeTooMany  = "TooMany"         // 507: a limit of this node
	CodeDisk     = "DiskFull"        // 507: the agent's disk has no room, or takes no writes
	CodeServers  = "NoServers"       // 503: no server answered in time
	CodeWaiting  = "Waiting"         // 504: done, and not there in time; PUT again continues
	CodeInternal = "InternalError"   // 500: of the agent
)

// Error is the answer to a request that did not succeed.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"` // what was wrong, and what to do
	// VM is what is there, with CodeWaiting.
	VM *VM `json:"vm,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }
