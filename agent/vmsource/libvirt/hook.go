package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource/registered"
	"rutter/log"
)

// SourceName is the name of libvirt's source of VMs.
const SourceName = "libvirt"

// The operations of libvirt's hook for QEMU (its documentation, hooks.html). libvirt 9.0
// starts no domain whose prepare, start or started fails, and kills a running domain whose
// reconnect fails. At the destination of a migration, migrate comes before prepare.
const (
	opPrepare   = "prepare"   // before anything of the domain is made
	opStarted   = "started"   // its QEMU is there; the destination's still waits for memory
	opStopped   = "stopped"   // its QEMU has ended
	opReconnect = "reconnect" // libvirtd was started, and the domain runs
	opAttach    = "attach"    // libvirtd took over a QEMU that ran
)

// Registrar registers VMs; *registered.Client does.
type Registrar interface {
	Put(ctx context.Context, id log.UUID, r registered.Registration, wait registered.Wait) (registered.VM, error)
}

// Hook does what a domain needs of us at each operation of libvirt's hook. A domain without
// an interface of ours needs nothing, and nothing is refused to it.
type Hook struct {
	Agent Registrar
	// Owner owns the domains whose metadata name none.
	Owner log.UUID
	// Within bounds one run, also while no agent and no server answers.
	Within time.Duration
	// Say is told what went wrong where the domain must not suffer from it, and which
	// interfaces are not ours.
	Say func(format string, args ...any)
}

// DefaultWithin is how long libvirt waits for a hook of ours at most. Each virsh that asks
// for the domain waits as long.
const DefaultWithin = 20 * time.Second

// Run does one operation. args are the hook's: the domain's name, the operation,
// sub-operation and extra; r is the domain's XML. An error refuses the operation to libvirt,
// and only prepare has one: the errors of all others would stop or kill a domain that could
// run, so they are said, and mended by the Source.
func (h Hook) Run(ctx context.Context, args []string, r io.Reader) error {
	if len(args) < 2 {
		return fmt.Errorf("libvirt: want the arguments of libvirt's hook: the domain, the operation, and two more; there are %d", len(args))
	}
	ctx, cancel := context.WithTimeout(ctx, h.Within)
	defer cancel()
	state := ""
	switch args[1] {
	case opPrepare, opStarted, opReconnect, opAttach:
		state = registered.StateRunning
	case opStopped:
		state = registered.StateStopped
	default:
		if _, err := readAll(ctx, r); err != nil { // libvirt writes it before it waits
			h.Say("%s of %s: %v", args[1], args[0], err)
		}
		return nil
	}
	err := h.register(ctx, args[1], state, r)
	if err != nil && args[1] != opPrepare {
		h.Say("%s of %s: %v", args[1], args[0], err)
		return nil
	}
	return err
}

// register tells the agent what the domain has. At prepare it returns when the links are
// there, because QEMU opens them next.
func (h Hook) register(ctx context.Context, op, state string, r io.Reader) error {
	text, err := readAll(ctx, r)
	if err != nil {
		return err
	}
	d, err := ParseDomain(bytes.NewReader(text))
	if err != nil && !ours(text) {
		h.Say("%s: %v", op, err)
		return nil
	}
	if err != nil {
		return err
	}
	if len(d.NICs) == 0 {
		return nil
	}
	wait := registered.Wait{For: registered.WaitNone}
	if op == opPrepare {
		for _, other := range d.Others {
			h.Say("the interface %s of %s is not of the log: libvirt connects it", other, d.Name)
		}
		wait = registered.Wait{For: registered.WaitNode, Within: h.Within * 9 / 10} // the rest: to answer
	}
	_, err = h.Agent.Put(ctx, d.UUID, d.Registration(state, h.Owner), wait)
	return explained(d, err)
}

// readAll reads a domain's XML, and one byte more of one that is too long.
func readAll(ctx context.Context, r io.Reader) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() { // ends with the process, if libvirt never closes its end
		text, err := io.ReadAll(io.LimitReader(r, MaxXML+1))
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoDomain, r.err)
		}
		return r.text, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: it did not come in time: %w", ErrNoDomain, ctx.Err())
	}
}

// ourTap is the default name of a tap of ours: vmdoc.TapName.
var ourTap = regexp.MustCompile(`['"]rt[0-9a-f]{12}['"]`)

// ours reports whether text that could not be read may be a domain with an interface of
// ours. Others are started, whatever we cannot read of them.
func ours(text []byte) bool {
	return bytes.Contains(text, []byte(Namespace)) || ourTap.Match(text)
}

// explained adds to an error what an operator does about it. It stands in libvirt's own
// error, so it is one line.
func explained(d Domain, err error) error {
	var answer *registered.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, registered.ErrNoAgent):
		return fmt.Errorf("the links of %s cannot be made: %w. Start it (systemctl start rutter-agent), then start the domain again", d.Name, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the links of %s were not there in time: %w. rutter agent status says what is missing; then start the domain again", d.Name, err)
	case errors.As(err, &answer):
		return fmt.Errorf("the links of %s: %w", d.Name, err)
	}
	return err
}

// Registration is the domain as a VM in a state, of the owner if its metadata name none.
func (d Domain) Registration(state string, owner log.UUID) registered.Registration {
	if !d.Owner.IsZero() {
		owner = d.Owner
	}
	r := registered.Registration{Alias: d.Name, OwnerUUID: owner, State: state, RAM: d.RAM, VCPUs: d.VCPUs, Brand: "kvm"}
	for _, n := range d.NICs {
		r.NICs = append(r.NICs, registered.NIC{
			Key: n.Key(), Network: n.Network, MAC: n.MAC, IPs: n.IPs, Primary: n.Primary,
			Attach: &vmdoc.Attach{Kind: vmdoc.AttachTap, Device: n.Device},
		})
	}
	return r
}

// Key names the NIC in its VM: its MAC.
func (n NIC) Key() string { return n.MAC.String() }
