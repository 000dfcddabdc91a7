package cnicmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource/registered"
	"rutter/cmd/rutter/output"
	"rutter/log"
)

// add gives a container a NIC, and returns when all nodes that it concerns reach it. It may be
// repeated after any end: the same container and interface are the same NIC.
func (p *plugin) add(args *skel.CmdArgs) error {
	want, err := askedOf(p.conf, args)
	if err != nil {
		return err
	}
	id, err := p.vm(args.ContainerID)
	if err != nil {
		return err
	}
	if err := p.free(id, args); err != nil {
		return err
	}
	zone, err := nameNamespace(p.conf.NetNS, args.Netns, args.ContainerID)
	if err != nil {
		return err
	}
	key := p.keyOf(args.IfName)
	vm, err := p.put(id, registered.Registration{
		Alias: want.alias, OwnerUUID: p.conf.OwnerUUID, Zonename: zone,
		Tags: map[string]string{"cni_container": args.ContainerID},
		NICs: []registered.NIC{{Key: key, Network: p.conf.Network, MAC: want.mac, IPs: want.ips, Attach: &vmdoc.Attach{Kind: vmdoc.AttachNamespace, Device: args.IfName}}},
	})
	if err != nil {
		return err
	}
	nic := vm.NIC(key)
	if nic == nil {
		return types.NewError(types.ErrInternal, fmt.Sprintf("the agent answered without NIC %s", key), "")
	}
	if p.conf.MTU != 0 && nic.MTU != p.conf.MTU {
		bad := invalidConf("network %s has an MTU of %d, and the configuration wants %d: leave mtu out, or change the network's (rutter network update)", nic.Network, nic.MTU, p.conf.MTU)
		return errors.Join(bad, p.remove(args.ContainerID, id, key))
	}
	p.result, err = p.resultOf(args, nic)
	return err
}

// put registers a NIC, and waits until the kernels of all nodes that it concerns have it. A
// tenth of the timeout is left for the answer.
func (p *plugin) put(id log.UUID, r registered.Registration) (vm registered.VM, err error) {
	err = p.again(func() (err error) {
		within := p.conf.timeout
		if end, ok := p.ctx.Deadline(); ok {
			within = time.Until(end) - p.conf.timeout/10
		}
		if within <= 0 {
			return p.ctx.Err()
		}
		vm, err = p.client.Put(p.ctx, id, r, registered.Wait{For: registered.WaitFabric, Within: within})
		return err
	})
	return vm, cniError(err)
}

// free refuses an interface that the container has from another program. One that an agent made
// for another container of the same namespace is waited for, for convergence or half of the
// timeout: the agent takes it away when the log has that container's DEL.
func (p *plugin) free(id log.UUID, args *skel.CmdArgs) error {
	var vm registered.VM
	err := p.again(func() (err error) {
		vm, err = p.client.Get(p.ctx, id)
		return err
	})
	var answered *registered.Error
	switch {
	case err == nil && vm.NIC(p.keyOf(args.IfName)) != nil:
		return nil // of an earlier ADD
	case err != nil && !(errors.As(err, &answered) && answered.Code == registered.CodeUnknown):
		return cniError(err)
	}
	end := time.Now().Add(min(convergence, p.conf.timeout/2))
	for {
		d, err := readDevice(args.Netns, args.IfName)
		switch {
		case errors.Is(err, errNoDevice):
			return nil
		case err != nil:
			return err
		case !d.marked:
			return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("CNI_IFNAME %s: the container has an interface of that name already, which this plugin did not make under configuration %q", args.IfName, p.conf.Name), "")
		case time.Now().After(end):
			return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("CNI_IFNAME %s: the namespace has an interface of that name, with MAC %s, which an agent made for another container or configuration: it goes when the log has its DEL, which takes a server", args.IfName, d.mac), "")
		}
		time.Sleep(retryEvery)
	}
}

// del takes a container's NIC away. It succeeds if there is none, and while no server
// answers: the agent sends it later.
func (p *plugin) del(args *skel.CmdArgs) error {
	id, err := p.vm(args.ContainerID)
	if err != nil {
		return err
	}
	return p.remove(args.ContainerID, id, p.keyOf(args.IfName))
}

// remove removes a NIC, and with a container's last one its VM and the name of its namespace.
func (p *plugin) remove(containerID string, id log.UUID, key string) error {
	return cniError(p.again(func() error {
		vm, err := p.client.Get(p.ctx, id)
		var answered *registered.Error
		switch {
		case errors.As(err, &answered) && answered.Code == registered.CodeUnknown:
		case err != nil:
			return err
		case slices.ContainsFunc(vm.NICs, func(n registered.Attached) bool { return n.Key != key }):
			return p.client.DeleteNIC(p.ctx, id, key)
		default:
			if err := p.client.Delete(p.ctx, id); err != nil {
				return err
			}
		}
		return unbindNamespace(p.conf.NetNS, boundName(containerID))
	}))
}

// gc removes the NICs of this configuration whose attachments the runtime does not name. VMs of
// other sources, and NICs of configurations of other names, are not touched.
func (p *plugin) gc(*skel.CmdArgs) error {
	if p.conf.ValidAttachments == nil {
		return output.Print(p.stderr, "rutter cni: GC without cni.dev/valid-attachments: nothing is removed\n")
	}
	var n node
	var vms []registered.VM
	err := p.again(func() (err error) {
		if n, err = p.node(); err == nil {
			vms, err = p.client.List(p.ctx)
		}
		return err
	})
	if err != nil {
		return cniError(err)
	}
	type attachment struct {
		vm  log.UUID
		key string
	}
	valid := map[attachment]bool{}
	for _, a := range p.conf.ValidAttachments {
		valid[attachment{vmOf(n.CN, a.ContainerID), p.keyOf(a.IfName)}] = true
	}
	var failed []error
	for _, vm := range vms {
		stale := 0
		for _, nic := range vm.NICs {
			if !strings.HasPrefix(nic.Key, p.keyOf("")) || valid[attachment{vm.UUID, nic.Key}] {
				continue
			}
			stale++
			if stale < len(vm.NICs) { // the last one goes with the VM
				failed = append(failed, p.client.DeleteNIC(p.ctx, vm.UUID, nic.Key))
			}
		}
		if stale > 0 && stale == len(vm.NICs) {
			failed = append(failed, p.forget(&vm))
		}
	}
	return cniError(errors.Join(failed...))
}

// forget removes a VM of which only the answer of the agent is known, and the name that this
// program gave its namespace.
func (p *plugin) forget(vm *registered.VM) error {
	if err := p.client.Delete(p.ctx, vm.UUID); err != nil || !strings.HasPrefix(vm.Zonename, boundPrefix) {
		return err
	}
	return unbindNamespace(p.conf.NetNS, vm.Zonename)
}

// status says whether an ADD can be served now.
func (p *plugin) status(*skel.CmdArgs) error {
	if err := p.conf.checkAdd(); err != nil {
		return err
	}
	n, err := p.node()
	if err == nil {
		_, err = p.client.List(p.ctx)
	}
	switch {
	case errors.Is(err, registered.ErrNoAgent):
		// No agent answers what containers ask (ARP, neighbours), nor follows the log.
		return types.NewError(types.ErrLimitedConnectivity, err.Error(), "")
	case err != nil:
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
	case n.State != "following" || n.Applied == 0:
		return types.NewError(types.ErrPluginNotAvailable, fmt.Sprintf("the agent has no server: it is %s; containers that run keep their network", n.State), n.Failure)
	case n.Kernel.Failure != "":
		return types.NewError(types.ErrLimitedConnectivity, "the agent cannot program the kernel", n.Kernel.Failure)
	}
	return nil
}
