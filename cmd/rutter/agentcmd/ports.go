package agentcmd

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/agent/filter"
	"rutter/agent/ports"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/projections/desired"
)

// dropsShown bounds the ports whose drops the text of rutter agent status has.
const dropsShown = 10

func portsCommand() *cli.Command {
	return &cli.Command{
		Name: "ports", Usage: "the ports of this machine's VMs that have rules: what they let through, and what they dropped", Action: printPorts,
		Flags: append([]cli.Flag{
			output.Flag(),
			&cli.IntFlag{Name: "limit", Value: 100, Usage: "at most `N` of them, those that dropped most first; 0: all. JSON has all"},
		}, askFlags()...),
		Description: term.Examples("rutter agent ports", "rutter agent ports --limit 0", "rutter agent ports -o json"),
	}
}

func printPorts(c *cli.Context) error {
	if c.Int("limit") < 0 {
		return term.Usagef("--limit %d: want 0 or more", c.Int("limit"))
	}
	s, err := statusOf(c)
	if err != nil {
		return err
	}
	return output.One(c, s.Security, func(w io.Writer) { writePorts(w, &s.Security, c.Int("limit")) })
}

// writePorts lists at most limit ports, 0: all.
func writePorts(out io.Writer, s *ports.Status, limit int) {
	writeMode(out, s)
	if len(s.Ports) == 0 {
		return
	}
	list, _ := s.Most(len(s.Ports))
	for _, p := range s.Ports {
		if p.Drops.Total().Packets == 0 {
			list = append(list, p)
		}
	}
	shown := list
	if limit > 0 && len(list) > limit {
		shown = list[:limit]
	}
	w := output.Aligned(out)
	output.Print(w, "NIC\tVM\tHOST END\tLETS THROUGH\tDROPPED\n")
	for i := range shown {
		p := &shown[i]
		allowed := make([]string, 0, len(p.Addresses)+len(p.Relaxed))
		for _, ip := range p.Addresses {
			allowed = append(allowed, ip.String())
		}
		output.Printf(w, "%s\t%s\t%s\t%s\t%s\n", p.NIC, output.Text(p.NameOf()), p.Name, output.Text(strings.Join(append(allowed, p.Relaxed...), " ")), output.Text(p.Drops.String()))
	}
	_ = w.Flush() // the terminal is gone
	if more := len(list) - len(shown); more > 0 {
		output.Printf(out, "and %d more (--limit 0 shows all)\n", more)
	}
}

func writeMode(w io.Writer, s *ports.Status) {
	text := cmp.Or(s.Mode.Mode, desired.SecurityOff)
	if !s.Since.IsZero() {
		text += " since " + s.Since.Format(time.RFC3339)
	}
	if s.Mode.Mode == desired.SecurityEnforced {
		text += fmt.Sprintf(", %d ports", len(s.Ports))
	}
	if s.Why != "" {
		text += ": " + s.Why
	}
	if s.Mode.Mode == desired.SecurityUnsupported && s.Required {
		text += " (no link of a VM is brought up)"
	}
	output.Printf(w, "port security %s\n", text)
	if s.Failure != "" {
		output.Printf(w, "              it cannot be read: %s\n", s.Failure)
	}
}

// writeSecurity says of port security what rutter agent status shows.
func writeSecurity(w io.Writer, s *ports.Status) {
	writeMode(w, s)
	most, others := s.Most(dropsShown)
	for i := range most {
		p := &most[i]
		output.Printf(w, "dropped       at %s%s: %s\n", p.NIC, inBrackets(p.NameOf()), p.Drops)
	}
	if others > 0 {
		output.Printf(w, "              and at %d more ports (rutter agent ports)\n", others)
	}
	if len(s.Underlay) > 0 {
		output.Printf(w, "              at the underlay: %s\n", ports.Drops(map[filter.Reason]filter.Count(s.Underlay)))
	}
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + output.Text(text) + ")"
}
