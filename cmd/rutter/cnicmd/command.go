package cnicmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// commandVariable is the variable in which a runtime says what a plugin is to do.
const commandVariable = "CNI_COMMAND"

// inputTimeout bounds the time until a runtime has sent the configuration.
const inputTimeout = 10 * time.Second

// specVersions are the versions of CNI's specification that are spoken here. Older ones have
// results with one address only.
var specVersions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Asked reports whether a runtime of containers runs this program as its plugin: the program
// is in the runtime's folder of plugins under any name, and has no arguments.
func Asked(args []string) bool { return len(args) == 1 && os.Getenv(commandVariable) != "" }

// Command is `rutter cni`.
func Command() *cli.Command {
	return &cli.Command{
		Name: "cni", Usage: "the plugin of container runtimes: a NIC of the log for each container", Category: "Compute node",
		Action: run, Description: description,
	}
}

// description is the help of `rutter cni`.
var description = `A runtime of containers (containerd, CRI-O, podman) runs this, with variables CNI_*
and a configuration on standard input, as the specification of CNI ` + specVersions[len(specVersions)-1] + ` says. The
runtime finds it by the name in "type", in its folder of plugins: link the program
there. Run without arguments by a runtime, the program is this command.

` + term.Examples(
	"ln -s /usr/bin/rutter /opt/cni/bin/rutter",
	"CNI_COMMAND=VERSION rutter cni",
) + `

/etc/cni/net.d/10-rutter.conflist, for a network of the log:

  {"cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"], "name": "web", "plugins": [{
    "type": "rutter", "network": "0e70de36-a40b-4ac0-9429-819f5ff82011",
    "owner_uuid": "930896af-bf8c-48d4-885c-6573a94b1853",
    "capabilities": {"ips": true, "mac": true}}]}

  network     UUID of a network of the log, which self_provision opens to this node;
              or its name, where the node has a NIC on it already
  owner_uuid  owner of the containers' NICs
  mtu         bytes; ADD fails if the network has another one; left out: any
  timeout     of one command, such as 30s; left out: 60s
  socket      of the agent; left out: /run/rutter/agent.sock
  netns       the agent's --netns; left out: /run/netns
  dns         in place of the network's resolvers, and domain, search and options

ADD returns when all nodes that it concerns reach the container. docs/vms.md has more.
`

// errPrinted: the error is on standard output, in CNI's form.
var errPrinted = errors.New("")

// run is the action of `rutter cni`. The library reads the process's own environment and
// standard input, so that it is called once in a process.
func run(c *cli.Context) error {
	if c.NArg() > 0 {
		return term.Usagef("rutter cni takes no arguments: a runtime of containers sets CNI_COMMAND and others; rutter cni --help has an example")
	}
	if os.Getenv(commandVariable) == "" {
		return term.Usagef("CNI_COMMAND is not set: a runtime of containers runs this command; rutter cni --help says how")
	}
	text, err := readInput(c.Context)
	if err != nil {
		return printError(c, "", types.NewError(types.ErrIOFailure, "the configuration cannot be read from standard input", err.Error()))
	}
	p := &plugin{ctx: c.Context, stderr: c.App.ErrWriter}
	if failed := p.call(text); failed != nil {
		return printError(c, p.version, failed)
	}
	if p.result == nil {
		return nil
	}
	return output.Indented(c.App.Writer, p.result)
}

// call gives a command to the library, which calls p's method for it.
func (p *plugin) call(input []byte) *types.Error {
	read, write, err := os.Pipe()
	if err != nil {
		return types.NewError(types.ErrIOFailure, err.Error(), "")
	}
	os.Stdin = read // of which the library reads all
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = bytes.NewReader(input).WriteTo(write) // the library says what is wrong with a part
		write.Close()
	}()
	failed := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: p.bounded(p.add), Del: p.bounded(p.del), Check: p.bounded(p.check), GC: p.bounded(p.gc), Status: p.bounded(p.status),
	}, version.PluginSupports(specVersions...), "rutter cni")
	read.Close()
	<-sent
	return failed
}

// readInput reads standard input, at most one byte more than maxInput. VERSION needs none,
// and a runtime may leave it open.
func readInput(ctx context.Context) ([]byte, error) {
	if os.Getenv(commandVariable) == "VERSION" {
		return nil, nil
	}
	type read struct {
		text []byte
		err  error
	}
	done := make(chan read, 1)
	input := os.Stdin
	go func() { // ends with the process at the latest
		text, err := io.ReadAll(io.LimitReader(input, maxInput+1))
		done <- read{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(inputTimeout):
		return nil, fmt.Errorf("it did not end within %s", inputTimeout)
	}
}

// printed is the JSON of an error. The library's form has no version.
type printed struct {
	Version string `json:"cniVersion"`
	*types.Error
}

// printError writes an error to standard output, for the runtime.
func printError(c *cli.Context, version string, failed *types.Error) error {
	if version == "" {
		version = specVersions[len(specVersions)-1]
	}
	if err := output.Indented(c.App.Writer, printed{version, failed}); err != nil {
		return err
	}
	return errPrinted
}
