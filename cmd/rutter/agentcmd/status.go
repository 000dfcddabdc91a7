package agentcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/agent"
	"rutter/agent/netsync"
	"rutter/agent/underlay"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/node"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
)

// statusFlag is the address at which an agent serves its status.
func statusFlag() cli.Flag {
	return &cli.StringFlag{Name: "listen", EnvVars: []string{"RUTTER_AGENT_LISTEN"}, Value: "127.0.0.1:5309", Usage: "`ADDRESS` at which the agent serves its status, and nothing that changes anything, or off"}
}

// askFlags are where a command asks the agent for its status.
func askFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "agent", EnvVars: []string{"RUTTER_AGENT_SOCKET"}, Value: localhttp.DefaultSocket, Usage: "`PATH` of the agent's socket, which is asked first, or off; it is root's, and other users ask at --listen"},
		&cli.StringFlag{Name: "listen", EnvVars: []string{"RUTTER_AGENT_LISTEN"}, Value: "127.0.0.1:5309", Usage: "`ADDRESS` at which the agent serves its status, asked where its socket does not answer, or off; without --agent, only what this names is asked"},
		&cli.DurationFlag{Name: "wait", Usage: "ask again for this `TIME` until the agent answers, as after its start"},
	}
}

// doors are where a command asks the agent, in their order.
func doors(c *cli.Context) (all []string) {
	socket, address := c.String("agent"), c.String("listen")
	if socket != "off" && (!c.IsSet("listen") || address == "off" || c.IsSet("agent")) {
		all = append(all, socket)
	}
	if address != "off" {
		all = append(all, address)
	}
	return all
}

// statusOf asks the agent for its status, at its socket first.
func statusOf(c *cli.Context) (s node.Status, err error) {
	if err := term.NoArguments(c); err != nil {
		return s, err
	}
	all := doors(c)
	if len(all) == 0 {
		return s, term.Usagef("--agent off --listen off: name the agent's socket by --agent, or its address by --listen")
	}
	for deadline := time.Now().Add(c.Duration("wait")); ; {
		failures := make([]string, 0, len(all))
		for _, door := range all {
			if s, err = statusAt(c.Context, door); err == nil {
				return s, nil
			}
			failures = append(failures, err.Error())
		}
		if !time.Now().Before(deadline) || c.Context.Err() != nil {
			return s, term.NoAnswerError(fmt.Sprintf("no agent answers: %s (does it run here? --agent names another socket, --listen another address)", strings.Join(failures, "; ")))
		}
		select {
		case <-c.Context.Done():
		case <-time.After(askAgain):
		}
	}
}

// askAgain is the pause until an agent that did not answer is asked again (--wait).
const askAgain = 100 * time.Millisecond

// statusAt asks an agent at its socket or its address.
func statusAt(ctx context.Context, door string) (s node.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, localhttp.Limit)
	defer cancel()
	base, transport := localhttp.Reach(door)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/status", nil)
	if err != nil {
		return s, fmt.Errorf("%q: %w", door, err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return s, fmt.Errorf("%s: %w", door, errors.Unwrap(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return s, fmt.Errorf("%s: status %s", door, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
		return s, fmt.Errorf("%s: %w", door, err)
	}
	return s, nil
}

// printStatus prints the status of the agent.
func printStatus(c *cli.Context) error {
	s, err := statusOf(c)
	if err != nil {
		return err
	}
	return output.One(c, s, func(w io.Writer) {
		writeAgentStatus(w, s.Status)
		writeUnderlay(w, s.Underlay)
		writeSecurity(w, &s.Security)
		writeVMStatus(w, s.VMs)
	})
}

// heldNames bounds the links that are named of held removals.
const heldNames = 8

func writeAgentStatus(w io.Writer, s agent.Status) {
	matches := "does not match yet"
	if s.Kernel.Matched {
		matches = fmt.Sprintf("matches at seq %d", s.Programmed)
	} else if s.Reached > 0 {
		matches = fmt.Sprintf("matches at seq %d, but for %d objects that wait and %d of VMs that are not to run", s.Reached, s.Kernel.Waiting, s.Kernel.Idle)
	}
	output.Printf(w, "compute node  %s, incarnation %d\n", s.CN, s.Incarnation)
	output.Printf(w, "feed          %v since %s, server %s\n", s.State, s.Since.Format(time.RFC3339), s.Server)
	output.Printf(w, "cursor        %d, %d behind the head that was last heard of\n", s.Cursor.Seq, s.Lag)
	output.Printf(w, "kernel        %s: %d links, %d neighbours, %d FDB entries wanted; %d healed\n", matches, s.Kernel.Links, s.Kernel.Neighs, s.Kernel.FDB, s.Kernel.Healed)
	if d := s.Kernel.Demand; d.VNets > 0 {
		output.Printf(w, "on demand     %d vnets: %d entries in the kernel, %d of %d questions answered, %d evicted\n", d.VNets, d.Resident, d.Answered, d.Questions, d.Evicted)
	}
	if s.Hold != nil {
		output.Printf(w, "held          %s\n", s.Hold)
		for _, name := range s.Hold.Names[:min(len(s.Hold.Names), heldNames)] {
			output.Printf(w, "              would go: %s\n", name)
		}
		output.Printf(w, "              rutter cn accept %s lets it\n", s.CN)
	}
	for _, line := range s.Kernel.Renamed {
		output.Printf(w, "renamed       %s\n", line)
	}
	for _, line := range s.Trouble {
		output.Printf(w, "trouble       %s\n", line)
	}
	for i, line := range s.Kernel.Drift {
		if i == 0 {
			output.Printf(w, "put right     %d in all%s; the last time:\n", s.Kernel.Healed, kindsText(s.Kernel.HealedBy))
		}
		output.Printf(w, "              %s\n", line)
	}
	for _, o := range s.Kernel.Waits {
		again := "with the next pass"
		if !o.RetryAt.IsZero() {
			again = o.RetryAt.Format(time.RFC3339)
		}
		if o.Idle {
			output.Printf(w, "              %s\n", o.Object)
		} else {
			output.Printf(w, "waits         %s (next try %s)\n", o.Object, again)
		}
	}
	if more := s.Kernel.Waiting + s.Kernel.Idle - len(s.Kernel.Waits); more > 0 {
		output.Printf(w, "              and %d more\n", more)
	}
	for _, line := range s.Kernel.Problems {
		output.Printf(w, "              %s\n", line)
	}
	if s.Age > 0 {
		output.Printf(w, "cut off       for %s: lookups are answered from the cache\n", s.Age.Round(time.Second))
	}
	if s.Failure != "" {
		output.Printf(w, "last failure  %s\n", s.Failure)
	}
}

// kindsText lists counts by kind, as in " (1 link, 2 neighbours)".
func kindsText(counts map[string]uint64) string {
	texts := make([]string, 0, len(counts))
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, fmt.Sprintf("%s %d", kind, counts[kind]))
	}
	if len(texts) == 0 {
		return ""
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

func writeUnderlay(w io.Writer, s *underlay.Status) {
	if s == nil || !s.Address.IsValid() {
		return
	}
	output.Printf(w, "underlay      %s on %s, MTU %s; %d other VTEPs, %d answered a probe\n", s.Address, output.Text(s.Interface), output.Text(mtuText(s.MTU)), s.VTEPs, s.Probed)
	for _, path := range s.Paths {
		addr, bytes, _ := strings.Cut(path, " ")
		output.Printf(w, "              the path to %s carries %s bytes\n", addr, bytes)
	}
}

func mtuText(mtu uint32) string {
	if mtu == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(mtu), 10)
}

func writeNICs(w io.Writer, s *netsync.Status) {
	if s == nil {
		return
	}
	output.Printf(w, "NICs          %d that the log has; %d changes of it reported, %d manifests edited, %d NICs taken from VMs\n", s.Held, s.Changes, s.Edits, s.Removed)
	if s.Failure != "" {
		output.Printf(w, "              %s\n", s.Failure)
	}
	for _, note := range s.Notes {
		output.Printf(w, "              %s\n", note)
	}
}

func writeVMStatus(w io.Writer, s *node.VMStatus) {
	if s == nil {
		return
	}
	output.Printf(w, "VMs           %d, and %d VMMs, of which the log may not have the state of %d; vminfod %s\n", s.VMs, s.VMMs, s.Link.Unrecorded, s.Vminfod)
	output.Printf(w, "inventory     %s", s.Link.Inventory)
	if !s.Link.Since.IsZero() {
		output.Printf(w, " since %s", s.Link.Since.Format(time.RFC3339))
	}
	output.Print(w, "\n")
	for _, line := range s.Link.Refused {
		output.Printf(w, "              %s\n", line)
	}
	if s.Link.Failure != "" {
		output.Printf(w, "              last ring: %s\n", s.Link.Failure)
	}
	writeNICs(w, s.NICs)
	output.Printf(w, "QEMU          %s\n", s.QEMU)
	vmhost.WriteHelper(w, "VM helper     ", s.Helper)
	vmhost.WriteSources(w, "VM source  ", s.Sources)
}
