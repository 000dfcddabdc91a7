package cnicmd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/uuid"

	"rutter/agent/vmsource/registered"
	"rutter/cmd/rutter/localhttp"
	"rutter/log"
)

// source is the name of the VMs that this program registers, among the agent's sources.
const source = "cni"

// Codes of errors that the specification leaves to plugins.
const (
	// codeRefused: the log refuses the NIC, or another source has the VM.
	codeRefused uint = 100
	// codeDifferent: CHECK found something else than there was.
	codeDifferent uint = 101
)

// Times of a command.
const (
	// agentPatience is how long a command waits for an agent that does not answer, because it
	// may restart: its unit starts it again after one second.
	agentPatience = 15 * time.Second
	// retryEvery is the time between two tries.
	retryEvery = 100 * time.Millisecond
	// convergence is how long CHECK waits for what the kernel is to have.
	convergence = 5 * time.Second
)

// plugin is one command of a runtime.
type plugin struct {
	ctx     context.Context // with the timeout of the configuration, in a method of a command
	stderr  io.Writer
	conf    *conf
	client  *registered.Client
	version string       // of the configuration; "": not known
	result  types.Result // to print; nil: nothing
}

// bounded is a command with its configuration read and its timeout set.
func (p *plugin) bounded(command func(*skel.CmdArgs) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		c, err := confOf(args.StdinData)
		if err != nil {
			return err
		}
		if len(args.ContainerID) > maxContainerID {
			return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("CNI_CONTAINERID has %d bytes: at most %d are read", len(args.ContainerID), maxContainerID), "")
		}
		p.conf, p.version = c, c.CNIVersion
		p.client = &registered.Client{Source: source, Socket: c.Socket}
		var cancel context.CancelFunc
		p.ctx, cancel = context.WithTimeout(p.ctx, c.timeout)
		defer cancel()
		return command(args)
	}
}

// maxKeyName bounds the bytes of a configuration's name in a key, of which registered.MaxKey
// has room for the longest name of an interface too.
const maxKeyName = registered.MaxKey - len(":") - 15

// keyOf is the key of a container's NIC: the name of the configuration, by which GC knows its
// own, and the name of the interface, which has no colon. Of a long name the key has the begin
// and a hash.
func (p *plugin) keyOf(ifName string) string {
	name := p.conf.Name
	if len(name) > maxKeyName {
		sum := sha256.Sum256([]byte(name))
		name = name[:maxKeyName-17] + "." + hex.EncodeToString(sum[:8])
	}
	return name + ":" + ifName
}

// node is the part of the agent's status that is read here.
type node struct {
	CN      log.UUID `json:"cn"`
	State   string   `json:"state"`
	Applied log.Seq  `json:"applied"`
	Failure string   `json:"error"`
	Kernel  struct {
		Failure string `json:"error"`
	} `json:"kernel"`
}

// maxStatus bounds the bytes of an agent's status.
const maxStatus = 16 << 20

// status of the agent. Errors: registered.ErrNoAgent.
func (p *plugin) node() (n node, err error) {
	base, transport := localhttp.Reach(p.conf.Socket)
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(p.ctx, http.MethodGet, base+"/status", nil)
	if err != nil {
		return n, fmt.Errorf("%w at %s: %w", registered.ErrNoAgent, p.conf.Socket, err)
	}
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return n, fmt.Errorf("%w at %s: %w", registered.ErrNoAgent, p.conf.Socket, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return n, fmt.Errorf("%w at %s: its status is %s", registered.ErrNoAgent, p.conf.Socket, response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxStatus)).Decode(&n); err != nil || n.CN.IsZero() {
		return n, fmt.Errorf("%w at %s: what serves there is no agent of a compute node", registered.ErrNoAgent, p.conf.Socket)
	}
	return n, nil
}

// again calls fn until it succeeds, or fails for another reason than that no agent answers,
// for agentPatience at most. An agent that restarts is waited for this way: each request to
// it may be repeated.
func (p *plugin) again(fn func() error) error {
	end := time.Now().Add(agentPatience)
	for {
		err := fn()
		if !errors.Is(err, registered.ErrNoAgent) || time.Now().After(end) {
			return err
		}
		select {
		case <-p.ctx.Done():
			return err
		case <-time.After(retryEvery):
		}
	}
}

// vmOf is the UUID of a container's VM: always the same for a container of a node.
func vmOf(cn log.UUID, containerID string) log.UUID {
	return log.UUID(uuid.NewSHA1(uuid.UUID(cn), []byte("cni "+containerID)))
}

// vm asks the agent for its node, and returns the UUID of a container's VM there.
func (p *plugin) vm(containerID string) (id log.UUID, err error) {
	err = p.again(func() error {
		n, err := p.node()
		id = vmOf(n.CN, containerID)
		return err
	})
	return id, cniError(err)
}

// cniError is an error of the agent with CNI's code. Others stay as they are.
func cniError(err error) error {
	var answered *registered.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, registered.ErrNoAgent):
		return types.NewError(types.ErrTryAgainLater, err.Error(), "")
	case !errors.As(err, &answered):
		return err
	}
	code := types.ErrInternal
	switch answered.Code {
	case registered.CodeInvalid:
		code = types.ErrInvalidNetworkConfig
	case registered.CodeRefused, registered.CodeOther:
		code = codeRefused
	case registered.CodeServers, registered.CodeWaiting, registered.CodeTooMany:
		code = types.ErrTryAgainLater
	case registered.CodeUnknown:
		code = types.ErrUnknownContainer
	}
	return types.NewError(code, cmp.Or(answered.Message, answered.Code), waitingOf(answered.VM))
}

// waitingOf says which NICs of a VM wait, and why.
func waitingOf(vm *registered.VM) (text string) {
	if vm == nil {
		return ""
	}
	for _, n := range vm.NICs {
		if n.State == registered.NICAttached {
			continue
		}
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("NIC %s (%s): %s", n.MAC, n.Key, cmp.Or(n.Reason, "waiting"))
	}
	return text
}
