package vmcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vminfod"

	"github.com/urfave/cli/v2"

	"rutter/agent/vmlink"
	"rutter/api/client"
	"rutter/cmd/rutter/await"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
	"rutter/log"
)

// Where a change of a VM must be visible before a command returns.
const (
	waitHere    = "here"
	waitCluster = "cluster"
	waitFabric  = "fabric"
)

func checkWait(c *cli.Context) error {
	switch c.String("wait") {
	case waitHere, waitCluster, waitFabric:
		return nil
	}
	return term.Usagef("--wait %q: want here, cluster or fabric", c.String("wait"))
}

// vmResult is the result of a command on a VM, as JSON.
type vmResult struct {
	UUID      log.UUID `json:"uuid"`
	Action    string   `json:"action"`
	HereMS    int64    `json:"here_ms"`              // until visible on this compute node
	Seq       log.Seq  `json:"seq,omitempty"`        // of the log, when it was visible there
	ClusterMS int64    `json:"cluster_ms,omitempty"` // until then
	CNs       int      `json:"cns,omitempty"`        // number of CNs that have programmed it
	FabricMS  int64    `json:"fabric_ms,omitempty"`  // until then
	// Absent is what is in no kernel because the VM is not to run, and why.
	Absent []client.Waiting `json:"absent,omitempty"`
}

// wait waits as --wait says. The change is visible on this node already.
func (a *vmAction) wait(ctx context.Context) (vmResult, error) {
	r := vmResult{UUID: a.id, Action: a.c.Command.Name, HereMS: a.here.Milliseconds()}
	if a.c.String("wait") == waitHere {
		return r, nil
	}
	api, err := a.servers()
	if err != nil {
		return r, err
	}
	if r.Seq, err = a.inLog(ctx, api); err != nil {
		return r, err
	}
	r.ClusterMS = time.Since(a.began).Milliseconds()
	if a.c.String("wait") == waitCluster {
		return r, nil
	}
	if a.byNode() {
		return r, a.awaitByNode(ctx, api, &r)
	}
	deadline, _ := ctx.Deadline()
	scopes, err := a.scopes(ctx, api)
	if err != nil || len(scopes) == 0 {
		return r, err
	}
	v, err := api.Wait(ctx, client.Barrier{Seq: r.Seq, Scopes: scopes, VM: a.id, Timeout: term.ServerWait(time.Until(deadline))})
	if err != nil {
		return r, err
	}
	if !v.Done {
		await.PrintVerdict(a.c.App.ErrWriter, v)
		return r, fmt.Errorf("seq %d is not in every kernel: %d of %d compute nodes are missing: %w", v.Seq, v.Total, v.CNs, vmdoc.ErrTimeout)
	}
	await.PrintAbsent(a.c.App.ErrWriter, v)
	r.CNs, r.FabricMS, r.Absent = v.CNs, time.Since(a.began).Milliseconds(), v.Absent
	return r, nil
}

// Pauses between two reads of a VM from the log.
const (
	lookMin = 5 * time.Millisecond
	lookMax = 200 * time.Millisecond
)

// inLog waits until the log has the VM as it is on this node, and returns the log's
// head then.
func (a *vmAction) inLog(ctx context.Context, api *client.Client) (log.Seq, error) {
	for pause := lookMin; ; pause = min(2*pause, lookMax) {
		differs, err := a.compare(ctx, api)
		switch {
		case err == nil && differs == "" && a.byNode():
			return 0, nil // the head is not a node's to read
		case err == nil && differs == "":
			return api.Head(ctx)
		case ctx.Err() != nil:
			return 0, a.timeoutError("and the log does not show it: " + differs)
		case err != nil:
			return 0, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// compare says how the log's VM differs from this node's: "" if the fields that the log
// keeps are equal.
func (a *vmAction) compare(ctx context.Context, api *client.Client) (string, error) {
	here, err := a.readHere(ctx)
	if err != nil {
		return "it could not be asked", err
	}
	fields, err := api.Get(ctx, "/vms/"+a.id.String(), nil)
	var refusal *log.Refusal
	unknown := errors.As(err, &refusal) && refusal.Code == log.CodeResourceNotFound
	switch {
	case err != nil && !unknown:
		return "it could not be asked", err
	case here == nil && (unknown || output.Text(fields["state"]) == "destroyed"):
		return "", nil
	case here == nil:
		return "it has the VM still (does it have NICs or VMMs there? rutter nic list belongs_to_uuid=" + a.id.String() + ")", nil
	case unknown:
		return "it does not have the VM (rutter agent status says why it is not reported)", nil
	}
	for name, want := range here {
		if got := output.Text(fields[name]); got != want {
			return fmt.Sprintf("%s is %s there, %s here", name, got, want), nil
		}
	}
	return "", nil
}

// readHere returns this node's VM, with the fields that the log keeps: nil if the node
// does not have it.
func (a *vmAction) readHere(ctx context.Context) (map[string]string, error) {
	raw, err := vmhost.Client(a.c).VM(ctx, a.id.String())
	var status *vminfod.StatusError
	if errors.As(err, &status) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := vmdoc.ParseValue(raw)
	if err != nil {
		return nil, err
	}
	vm, err := vmdoc.ParseVM(v)
	if err != nil {
		return nil, err
	}
	object, err := vmlink.ObjectOf(vm, log.UUID{})
	if err != nil {
		return nil, fmt.Errorf("the log cannot have this VM: %w", err)
	}
	b, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	kept := make(map[string]string)
	for _, name := range []string{"state", "zone_state", "alias", "brand", "max_physical_memory", "quota", "cpu_cap", "image_uuid"} {
		if value, ok := all[name]; ok {
			kept[name] = output.Text(value)
		}
	}
	return kept, nil
}

// scopes returns the scopes that the VM concerns: those of its compute node and of its
// NICs' networks.
func (a *vmAction) scopes(ctx context.Context, api *client.Client) ([]log.Scope, error) {
	var scopes []log.Scope
	add := func(text string) error {
		scope, err := log.ParseScope(text)
		if err == nil {
			scopes = append(scopes, scope)
		}
		return err
	}
	if vm, err := api.Get(ctx, "/vms/"+a.id.String(), nil); err == nil && output.Text(vm["server_uuid"]) != "-" {
		if err := add("cn:" + output.Text(vm["server_uuid"])); err != nil {
			return nil, err
		}
	}
	nics, err := api.List(ctx, "/nics", url.Values{"belongs_to_uuid": {a.id.String()}})
	if err != nil {
		return nil, err
	}
	for _, nic := range nics {
		network, err := api.Get(ctx, "/networks/"+output.Text(nic["network_uuid"]), nil)
		if err != nil {
			continue // it was deleted, or the NIC is on none
		}
		name := "network:" + output.Text(nic["network_uuid"])
		if vnet := output.Text(network["vnet_id"]); vnet != "-" {
			name = "vnet:" + vnet
		}
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return append(scopes, a.gone...), nil
}
