package vmcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vminfod"
	"rutter/agent/vminfo/vmmstate"
	"rutter/agent/vminfo/vmrun"
	"rutter/agent/vmsource"

	"github.com/urfave/cli/v2"

	"rutter/agent/vminfo"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
	"rutter/log"
)

// Bounds of the time until a change of a VM is visible, the same as vmadm's
// (spec/vminfod.md, 5.5).
const (
	vmSeenWithin    = 60 * time.Second
	vmCreatedWithin = 300 * time.Second
)

// Command is rutter vm: it controls the VMs of this compute node that manifests
// describe, and searches the VMs of all nodes.
func Command() *cli.Command {
	return &cli.Command{
		Name: "vm", Usage: "the VMs of this compute node: make, change, start, stop and list them", Category: "Compute node",
		Description: term.Examples(
			"rutter vm create alias=web0 owner_uuid=930896af-bf8c-48d4-885c-6573a94b1853 max_physical_memory=256 \\",
			"  'nics=[{\"network_uuid\":\"0e70de36-a40b-4ac0-9429-819f5ff82011\"}]' --start --wait=fabric",
			"rutter vm list",
			"rutter vm stop "+term.ExampleVM+" --wait=cluster",
			"rutter vm lookup alias=web0                    # among those of all compute nodes",
		) + "\n\nEach command that changes a VM returns when the change is visible: on this compute node; with --wait=cluster\n" +
			"in the log, on every server; with --wait=fabric in the kernels of all compute nodes that it concerns.",
		Subcommands: append(append(vmManifestCommands(), vmControlCommands()...), vmShowCommands()...),
	}
}

// vmActionFlags are those of every command that changes a VM.
func vmActionFlags(within time.Duration, more ...cli.Flag) []cli.Flag {
	return append(append(more,
		vmhost.AddressFlag(),
		agentAddressFlag(),
		term.ServersFlag(), output.Flag(),
		&cli.BoolFlag{Name: "human", Usage: "say it with its times"},
		&cli.DurationFlag{Name: "timeout", Value: within, Usage: "`TIME` until the change must be visible"},
		&cli.StringFlag{Name: "wait", EnvVars: []string{"RUTTER_WAIT"}, Value: waitHere, Usage: "return when the change is visible here, in the cluster's log, or in the fabric: `here, cluster or fabric`"},
		&cli.StringFlag{Name: "netns", EnvVars: []string{"RUTTER_NETNS"}, Value: "/run/netns", Usage: "`FOLDER` of named network namespaces, as ip-netns(8) keeps it"},
		&cli.StringFlag{Name: "etc-netns", EnvVars: []string{"RUTTER_ETC_NETNS"}, Value: "/etc/netns", Usage: "`FOLDER` in which the agent writes NAMESPACE/resolv.conf, as its --etc-netns says"},
	), vmhost.FolderFlags()...)
}

// agentAddressFlag is the address of this compute node's agent.
func agentAddressFlag() cli.Flag {
	return &cli.StringFlag{Name: "agent", EnvVars: []string{"RUTTER_AGENT_SOCKET"}, Value: localhttp.DefaultSocket, Usage: "`PATH` of the socket of this compute node's agent, or off: it is told what was asked for, so that a VM's end is no failure"}
}

// vmControlCommands start and stop the VMs of manifests on this compute node.
func vmControlCommands() []*cli.Command {
	force := &cli.BoolFlag{Name: "force", Aliases: []string{"F"}, Usage: "by SIGKILL, at once"}
	noNICs := &cli.BoolFlag{Name: "no-nics", Usage: "do not wait until the agent has put the NICs into the namespace"}
	return []*cli.Command{
		{
			Name: "start", Usage: "start a VM of this compute node; it is done when it is seen to run", ArgsUsage: "VM", Flags: vmActionFlags(vmSeenWithin, noNICs),
			Action: vmControl(startVM), Description: term.Examples("rutter vm start web0", "rutter vm start "+term.ExampleVM, "rutter vm start "+term.ExampleVM+" --wait=fabric --timeout 10s"),
		},
		{
			Name: "stop", Usage: "stop a VM of this compute node; it is done when it is seen to be stopped", ArgsUsage: "VM", Flags: vmActionFlags(vmSeenWithin, force),
			Action: vmControl(stopVM), Description: term.Examples("rutter vm stop web0", "rutter vm stop "+term.ExampleVM, "rutter vm stop -F "+term.ExampleVM),
		},
		{
			Name: "reboot", Usage: "stop a VM of this compute node, then start it", ArgsUsage: "VM", Flags: vmActionFlags(vmSeenWithin, noNICs, force),
			Action: vmControl(rebootVM), Description: term.Examples("rutter vm reboot web0", "rutter vm reboot "+term.ExampleVM, "rutter vm reboot -F "+term.ExampleVM+" --wait=cluster"),
		},
	}
}

// vmAction is one command on one VM.
type vmAction struct {
	c      *cli.Context
	runner *vmrun.Runner
	id     log.UUID
	began  time.Time
	here   time.Duration // until it was visible on this compute node
	gone   []log.Scope   // scopes of a VM that is deleted
	// written is the change of the log that the command made; nil: none.
	written *log.Change
	absent  []string // what no kernel has because the VM is not to run
}

// vmControl calls act with the VM that the first argument names and a context that ends
// at --timeout, waits as --wait says, and prints the result.
func vmControl(act func(context.Context, *vmAction) (done string, err error)) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() != 1 {
			return wantVM(c)
		}
		id, err := vmNamed(c, c.Args().First())
		if err != nil {
			return err
		}
		return runVMAction(c, id, act)
	}
}

func runVMAction(c *cli.Context, id log.UUID, act func(context.Context, *vmAction) (done string, err error)) error {
	if err := checkWait(c); err != nil {
		return err
	}
	runner, err := vmhost.NewRunner(vmhost.FoldersOf(c))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	a := &vmAction{c: c, runner: runner, id: id, began: time.Now()}
	done, other, err := a.elsewhere(ctx)
	if !other {
		done, err = act(ctx, a)
	}
	if err != nil {
		return vmhost.Unreachable(c, err)
	}
	a.here = time.Since(a.began)
	result, err := a.wait(ctx)
	if err != nil {
		return fmt.Errorf("VM %s %s; but: %w", id, done, err)
	}
	return output.One(c, result, func(w io.Writer) { a.print(w, done, result) })
}

// print prints the result; with --human the time of each step.
func (a *vmAction) print(w io.Writer, done string, r vmResult) {
	output.Printf(w, "VM %s %s", a.id, done)
	if a.c.Bool("human") {
		output.Printf(w, ", visible here after %s", a.here.Round(time.Millisecond))
		if r.Seq > 0 {
			output.Printf(w, ", in the log (seq %d) after %s", r.Seq, time.Duration(r.ClusterMS)*time.Millisecond)
		}
		if r.CNs > 0 {
			nodes := "compute nodes"
			if r.CNs == 1 {
				nodes = "compute node"
			}
			output.Printf(w, ", programmed on %d %s after %s", r.CNs, nodes, time.Duration(r.FabricMS)*time.Millisecond)
		}
	}
	output.Print(w, "\n")
}

// visible runs act, and returns when the VM is seen as want says; gone is true when it
// is not there. The stream of events is opened first, so that no event is missed.
func (a *vmAction) visible(ctx context.Context, want func(vm vmdoc.Value, gone bool) bool, act func() error) error {
	asked := vmhost.Client(a.c)
	events, err := asked.Events(ctx, vminfod.Position{})
	if err != nil {
		return err
	}
	defer events.Close()
	if err := act(); err != nil {
		return err
	}
	// The vminfod may have seen the change already, or there was nothing to change.
	// Then no event follows, so ask for the present state first.
	var status *vminfod.StatusError
	text, err := asked.VM(ctx, a.id.String())
	switch {
	case err == nil:
		if vm, err := vmdoc.ParseValue(text); err == nil && want(vm, false) {
			return nil
		}
	case errors.As(err, &status) && status.Code == http.StatusNotFound && want(vmdoc.Value{}, true):
		return nil
	}
	for {
		m, err := events.Next()
		switch {
		case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return a.timeoutError("its effect is not visible yet")
		case err != nil:
			return err
		case m.UUID == a.id.String() && want(m.VM, m.Type == "delete"):
			return nil
		}
	}
}

// timeoutError returns the error at --timeout.
func (a *vmAction) timeoutError(what string) error {
	return fmt.Errorf("VM %s: vminfod watchForChanges %q %w: the act was done, %s%s", a.id, a.c.Command.Name, vmdoc.ErrTimeout, what, a.asideReason())
}

// asideReason says whether the vminfod has set the VM's manifest aside, and why.
func (a *vmAction) asideReason() string {
	if list := a.asides(); len(list) > 0 {
		return ": its manifest is put aside: " + list[0].Reason
	}
	return ""
}

// duplicates are the manifests of the VM that stand aside because of its own.
func (a *vmAction) duplicates() (names []string) {
	for _, aside := range a.asides() {
		if aside.Name != a.id.String()+".json" {
			names = append(names, aside.Name)
		}
	}
	return names
}

// asides are the manifests of the VM that the vminfod has put aside.
func (a *vmAction) asides() (list []vmsource.Aside) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.c.Context), time.Second)
	defer cancel()
	var s vminfo.Status
	text, err := vmhost.Client(a.c).Get(ctx, "/status")
	if err != nil || json.Unmarshal(text, &s) != nil {
		return nil
	}
	for _, source := range s.Rutter.Sources {
		for _, aside := range source.Aside {
			if aside.UUID == a.id {
				list = append(list, aside)
			}
		}
	}
	return list
}

func startVM(ctx context.Context, a *vmAction) (string, error) {
	if !a.c.Bool("no-nics") {
		prepared := func(vm vmdoc.Value, gone bool) bool {
			return !gone && vmhost.StringOf(vm, "zone_state") != "installed" && vmdoc.Addressed(vm)
		}
		err := a.visible(ctx, prepared, func() error { return a.runner.Prepare(ctx, a.id) })
		if errors.Is(err, vmdoc.ErrTimeout) {
			return "", fmt.Errorf("%w (waiting for its NICs; --no-nics starts it without)", err)
		}
		if err != nil {
			return "", err
		}
	}
	running := func(vm vmdoc.Value, _ bool) bool { return vmhost.StringOf(vm, "state") == "running" }
	return "runs", a.visible(ctx, running, func() error { return a.runner.Start(ctx, a.id) })
}

func stopVM(ctx context.Context, a *vmAction) (string, error) {
	stopped := func(vm vmdoc.Value, gone bool) bool { return gone || vmhost.StringOf(vm, "zone_state") == "installed" }
	return "is stopped", a.visible(ctx, stopped, func() error {
		vmm, managed, err := a.vmm(ctx)
		if err != nil {
			return err
		}
		switch {
		case !managed:
			return a.runner.Stop(ctx, a.id, a.c.Bool("force"))
		case a.c.Bool("force"):
			return a.ask(ctx, http.MethodDelete, "/vmms/"+vmm.ID.String(), nil)
		}
		return a.ask(ctx, http.MethodPut, "/vmms/"+vmm.ID.String()+"/state", []byte(`{"state":{"type":"stopped"}}`))
	})
}

func rebootVM(ctx context.Context, a *vmAction) (string, error) {
	vmm, managed, err := a.vmm(ctx)
	if err != nil {
		return "", err
	}
	if !managed || a.c.Bool("force") {
		if _, err := stopVM(ctx, a); err != nil {
			return "", err
		}
		_, err := startVM(ctx, a)
		return "was rebooted", err
	}
	again := func(vm vmdoc.Value, _ bool) bool {
		pid, _ := vm.Get("pid")
		return vmhost.StringOf(vm, "state") == "running" && string(pid.AppendJSON(nil)) != fmt.Sprint(vmm.PID)
	}
	return "was rebooted", a.visible(ctx, again, func() error {
		return a.ask(ctx, http.MethodPut, "/vmms/"+vmm.ID.String()+"/state", []byte(`{"state":{"type":"reboot"}}`))
	})
}

// vmm returns the VMM of the VM at this node's agent. Without an agent or a VMM the
// result is nil, and the VM is stopped directly.
func (a *vmAction) vmm(ctx context.Context) (vmm vmmstate.VMM, managed bool, err error) {
	if a.c.String("agent") == "off" {
		return vmm, false, nil
	}
	var list []vmmstate.VMM
	err = a.get(ctx, a.c.String("agent"), "/vmms?vm="+a.id.String(), &list)
	var status *vminfod.StatusError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return vmm, false, a.withoutSocket(ctx, agentStatus)
	case errors.As(err, &status) && status.Code == http.StatusNotFound:
		return vmm, false, nil
	case errors.Is(err, fs.ErrPermission):
		return vmm, false, fmt.Errorf("the agent at %s is for root, and for the group of its --socket-group: %w", a.c.String("agent"), err)
	case err != nil:
		return vmm, false, fmt.Errorf("the agent at %s (--agent off does without): %w", a.c.String("agent"), err)
	}
	for _, v := range list {
		if !v.Final() {
			return v, true, nil
		}
	}
	return vmm, false, nil
}

// agentStatus is where an agent serves its status if it is not told otherwise. Agents
// that are too old to have a socket serve all there.
const agentStatus = "127.0.0.1:5309"

// withoutSocket refuses to act on a VM as if no agent managed it, if the agent that
// serves its status at an address does. An error of the request means that none does.
func (a *vmAction) withoutSocket(ctx context.Context, address string) error {
	if !localhttp.IsSocket(a.c.String("agent")) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, localhttp.Limit)
	defer cancel()
	var list []vmmstate.VMM
	if a.get(ctx, address, "/vmms?vm="+a.id.String(), &list) != nil {
		return nil
	}
	for _, v := range list {
		if !v.Final() {
			return fmt.Errorf("the agent at %s manages VMM %s of this VM, and no agent serves the socket %s: restart the agent with this version of rutter if it is older, or name its socket by --agent (--agent off does without it: the VM then counts as failed)", address, v.ID, a.c.String("agent"))
		}
	}
	return nil
}

// get asks the agent of this node at an address.
func (a *vmAction) get(ctx context.Context, address, path string, out any) error {
	base, transport := localhttp.Reach(address)
	asked := vminfod.New(strings.TrimPrefix(base, "http://"), "rutter vm "+a.c.Command.Name)
	asked.Transport = transport
	text, err := asked.Get(ctx, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// ask sends a request about a VMM to this node's agent.
func (a *vmAction) ask(ctx context.Context, method, path string, body []byte) error {
	base, transport := localhttp.Reach(a.c.String("agent"))
	request, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("api-version", vmmstate.NewestVersion)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	var failure struct{ Message string }
	text, _ := io.ReadAll(io.LimitReader(response.Body, term.MaxInput)) // without the text the status is enough
	_ = json.Unmarshal(text, &failure)
	return fmt.Errorf("the agent at %s: %w", a.c.String("agent"), &vminfod.StatusError{Code: response.StatusCode, Text: failure.Message})
}
