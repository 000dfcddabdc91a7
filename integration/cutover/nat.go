package cutover

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
)

// natPool is the network in which NAT zones have their outer address.
const natPool = external

// The node and the network of the installation.
const (
	oldNode  = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"
	external = "6f6b2a0e-0001-4c3e-8f3a-0242ac120001"
)

// needsNAT: a NIC on a fabric network with NAT that is not the gateway itself.
func needsNAT(nic object) bool {
	return nic["fabric"] == true && nic["internet_nat"] == true && nic["gateway"] != nil && nic["ip"] != nic["gateway"]
}

// nat makes a NAT zone for each fabric network that has none (5.5, fabric NAT). free
// releases the locks, at the end of the job.
func (v *oldVMAPI) nat(ctx context.Context, n *names, vm object, nics []any) (free func(), err error) {
	var held []func()
	free = func() {
		for _, release := range held {
			release()
		}
	}
	for _, one := range nics {
		nic := one.(object)
		if !needsNAT(nic) {
			continue
		}
		if nic["gateway_provisioned"] == true {
			v.natFound.Add(1)
			continue
		}
		network := text(nic, "network_uuid")
		release, err := take(ctx, n, "default", "fabric_nat", network, "provision", nil)
		if err != nil {
			return free, err
		}
		held = append(held, release)
		if err := v.makeNAT(ctx, n, vm, network); err != nil {
			return free, fmt.Errorf("NAT zone: %w", err)
		}
	}
	return free, nil
}

// makeNAT makes the NAT zone of a network, as SAPI does it, unless it is there.
func (v *oldVMAPI) makeNAT(ctx context.Context, n *names, vm object, network string) error {
	var known object
	if err := call(ctx, http.MethodGet, n.of("napi")+"/networks/"+network, nil, &known); err != nil {
		return err
	}
	if known["gateway_provisioned"] == true {
		v.natFound.Add(1)
		return nil
	}
	v.natMade.Add(1)
	var made struct {
		VM string `json:"vm_uuid"`
	}
	if err := call(ctx, http.MethodPost, n.of("vmapi")+"/vms", object{
		"alias": "nat-" + network, "owner_uuid": vm["owner_uuid"], "brand": "joyent-minimal", "image_uuid": vm["image_uuid"], "billing_id": uuid.NewString(), "ram": 128, "quota": 25, "cpu_cap": 400,
		"networks": []any{
			object{"ipv4_uuid": natPool, "primary": true, "allow_ip_spoofing": true},
			object{"ipv4_uuid": network, "ip": known["gateway"], "allow_ip_spoofing": true},
		},
	}, &made); err != nil {
		return err
	}
	return poll(ctx, "the NAT zone", func() (bool, error) {
		var zone object
		if err := call(ctx, http.MethodGet, n.of("vmapi")+"/vms/"+made.VM, nil, &zone); err != nil {
			return false, err
		}
		if zone["state"] == "failed" {
			return false, errors.New("it failed")
		}
		return zone["state"] == "running", nil
	})
}

// natNetworks are the networks with NAT of a VM that is to be destroyed.
func (v *oldVMAPI) natNetworks(ctx context.Context, n *names, nics []any) (networks []string) {
	for _, one := range nics {
		var nic object
		if err := call(ctx, http.MethodGet, n.of("napi")+"/nics/"+text(one.(object), "mac"), nil, &nic); err == nil && needsNAT(nic) {
			networks = append(networks, text(nic, "network_uuid"))
		}
	}
	return networks
}

// unmakeNAT removes the NAT zone of a network that nothing else uses.
func (v *oldVMAPI) unmakeNAT(ctx context.Context, n *names, network string) error {
	release, err := take(ctx, n, "default", "fabric_nat", network, "destroy", nil)
	if err != nil {
		return err
	}
	defer release()
	var nics, zones []object
	if err := call(ctx, http.MethodGet, n.of("napi")+"/nics?network_uuid="+network+"&limit=5", nil, &nics); err != nil {
		return err
	}
	for _, nic := range nics {
		if nic["ip"] != nic["gateway"] {
			return nil
		}
	}
	if err := call(ctx, http.MethodGet, n.of("vmapi")+"/vms?alias=nat-"+network+"&state=running", nil, &zones); err != nil {
		return err
	}
	for _, zone := range zones {
		if err := call(ctx, http.MethodDelete, n.of("vmapi")+"/vms/"+text(zone, "uuid"), nil, nil); err != nil {
			return err
		}
	}
	return nil
}
