package vmcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmrun"
	"rutter/api/client"
	"rutter/cmd/rutter/await"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
	"rutter/log"
)

// byNode reports whether servers are asked by this node's agent, with the node's
// certificate: unless the user named servers or a certificate.
func (a *vmAction) byNode() bool {
	_, certificate, err := term.TLSPaths(a.c)
	return err == nil && !certificate && !a.c.IsSet("server") && localhttp.IsSocket(a.c.String("agent"))
}

// servers returns a client of the servers: by this node's agent, or directly.
func (a *vmAction) servers() (*client.Client, error) {
	if !a.byNode() {
		return term.NewClient(a.c)
	}
	socket := a.c.String("agent")
	return term.OpenClient(client.Config{
		Servers: []string{"http://localhost"}, Timeout: a.c.Duration("timeout"),
		// The agent itself asks each server for a while.
		AttemptTimeout: 2 * agentAsks,
		Absent:         func(texts []string) { a.absent = texts },
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
			if err != nil {
				return nil, fmt.Errorf("the agent of this node, by which servers are asked (--server asks them directly): %w", err)
			}
			return conn, nil
		},
	}, nil)
}

// agentAsks is how long the agent may wait for the answer of a server, in one part of a wait.
const agentAsks = 2500 * time.Millisecond

// awaitByNode waits until the kernels of all nodes have what the command did, by the change
// that it made, which is done once, or by one that says the states of the VM's NICs again.
func (a *vmAction) awaitByNode(ctx context.Context, api *client.Client, r *vmResult) error {
	if a.written == nil {
		nics, err := api.List(ctx, "/nics", url.Values{"belongs_to_uuid": {a.id.String()}})
		if err != nil {
			return err
		}
		a.written = &log.Change{ID: client.NewChangeID()}
		for _, nic := range nics {
			mac, err := log.ParseMAC(output.Text(nic["mac"]))
			if err != nil {
				return err
			}
			a.written.Ops = append(a.written.Ops, log.Op{Action: log.Update, Kind: log.KindNIC, ID: mac.String(), Set: []string{"state"}, Object: &log.NIC{MAC: mac, State: output.Text(nic["state"])}})
		}
	}
	if len(a.written.Ops) == 0 {
		return nil
	}
	deadline, _ := ctx.Deadline()
	_, err := api.SubmitAwaiting(ctx, a.written, term.ServerWait(time.Until(deadline)))
	if pending, is := errors.AsType[*client.PendingError](err); is {
		await.PrintVerdict(a.c.App.ErrWriter, pending.Verdict)
		return fmt.Errorf("%s: %w", pending.Message, vmdoc.ErrTimeout)
	}
	for _, text := range a.absent {
		output.Printf(a.c.App.ErrWriter, "not there yet: %s\n", text)
		r.Absent = append(r.Absent, client.Waiting{Object: text, Idle: true})
	}
	r.FabricMS = time.Since(a.began).Milliseconds()
	return err
}

// elsewhere does a command on a VM that has no manifest, but is one of another source of this
// node: by its agent. other is false where that is not so.
func (a *vmAction) elsewhere(ctx context.Context) (done string, other bool, err error) {
	act := a.c.Command.Name
	if _, err := a.runner.Manifest(a.id); !errors.Is(err, vmrun.ErrNoVM) || !localhttp.IsSocket(a.c.String("agent")) {
		return "", false, nil
	}
	if !slices.Contains([]string{"start", "stop", "reboot", "delete"}, act) {
		return "", false, nil
	}
	if _, err := vmhost.Client(a.c).VM(ctx, a.id.String()); err != nil {
		return "", false, nil // no source of this node has it
	}
	seen := func(want string) func(vmdoc.Value, bool) bool {
		return func(vm vmdoc.Value, gone bool) bool { return gone && want == "" || !gone && vm.Text("state") == want }
	}
	send := func(method, path string) func() error { return func() error { return a.tellAgent(ctx, method, path) } }
	base, force := "/vms/"+a.id.String(), ""
	if a.c.Bool("force") {
		force = "?force"
	}
	switch act {
	case "start":
		return "runs", true, a.visible(ctx, seen("running"), send(http.MethodPost, base+"/start"))
	case "stop":
		return "is stopped", true, a.visible(ctx, seen("stopped"), send(http.MethodPost, base+"/stop"+force))
	case "delete":
		return "is removed from its source", true, a.visible(ctx, seen(""), send(http.MethodDelete, base))
	}
	if force == "" { // a source that reboots by itself keeps the VM's process, and so its links
		err := a.tellAgent(ctx, http.MethodPost, base+"/reboot")
		if refusal, is := errors.AsType[*agentRefusal](err); !is || !refusal.hasNone() {
			return "is told to reboot by its source", true, err
		}
	}
	if err := a.visible(ctx, seen("stopped"), send(http.MethodPost, base+"/stop"+force)); err != nil {
		return "", true, err
	}
	return "was rebooted", true, a.visible(ctx, seen("running"), send(http.MethodPost, base+"/start"))
}

// agentRefusal is what this node's agent says against a request.
type agentRefusal struct {
	status int // of HTTP
	text   string
}

// Error implements error.
func (r *agentRefusal) Error() string { return r.text }

// hasNone reports whether the agent, or the VM's source, has no such act: an agent of an
// earlier version has no reboot.
func (r *agentRefusal) hasNone() bool {
	return slices.Contains([]int{http.StatusNotImplemented, http.StatusNotFound, http.StatusMethodNotAllowed}, r.status)
}

// tellAgent sends a request to this node's agent, and returns what it says against it, an
// *agentRefusal.
func (a *vmAction) tellAgent(ctx context.Context, method, path string) error {
	base, transport := localhttp.Reach(a.c.String("agent"))
	request, err := http.NewRequestWithContext(ctx, method, base+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("VM %s has no manifest, so the agent of this node is asked: %w", a.id, err)
	}
	defer response.Body.Close()
	if response.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, term.MaxInput)) // without the text the status is enough
	refusal := new(log.Refusal)
	if json.Unmarshal(text, refusal) != nil || refusal.Message == "" {
		refusal.Message = response.Status
	}
	return &agentRefusal{response.StatusCode, fmt.Sprintf("VM %s: %s", a.id, refusal.Message)}
}
