package lookupcmd

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"rutter/cmd/rutter/output"
	"rutter/projections/desired"
)

// maxMoved bounds the counters that the text has of one CN; JSON has all.
const maxMoved = 16

// printKernels prints what the kernels of both CNs have.
func printKernels(out io.Writer, t *desired.Trace) {
	w := output.Aligned(out)
	output.Print(w, "\nCN\tITS KERNEL HAS\n")
	for i := range t.KernelsAsked {
		k := &t.KernelsAsked[i]
		name := hostName(t, k.CN)
		if k.View == nil {
			output.Printf(w, "%s\tnot known: %s\n", name, k.Unknown)
			continue
		}
		other := &t.To
		if k.NIC == t.To.NIC {
			other = &t.From
		}
		for _, line := range kernelLines(k, other) {
			output.Printf(w, "%s\t%s\n", name, line)
		}
	}
	_ = w.Flush() // the terminal is gone
}

// kernelLines says what one kernel has of the way to the other end.
func kernelLines(k *desired.TraceKernel, other *desired.TraceEnd) (lines []string) {
	v := k.View
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	tap := false // the guest has its other end, and its neighbours
	for _, l := range v.Links {
		text := fmt.Sprintf("%s (%s): %s, MTU %d", l.Name, l.Role, upText(l.Up), l.MTU)
		if l.Master != "" {
			text += ", in " + l.Master
		}
		if l.Role == desired.RoleVM {
			text += ", " + addressText(v)
		}
		if tap = tap || l.Role == desired.RoleTap; l.Closed {
			text += ", no program has it open"
		}
		add("%s", text)
	}
	if other.IP.IsValid() && !tap {
		text := "none"
		if n := v.Neighbour; n != nil {
			text = strings.TrimSpace(unlessZero(n.MAC.IsZero(), n.MAC) + " " + n.State)
		}
		add("neighbour %s: %s", other.IP, text)
	}
	if k.CN != other.CN {
		text := "none"
		if f := v.Forward; f != nil {
			text = f.VTEP.String()
			if f.Port != 0 {
				text += fmt.Sprintf(" port %d", f.Port)
			}
		}
		add("forwarding entry %s: %s", other.NIC, text)
	}
	lines = append(lines, securityLines(v)...)
	for _, text := range v.Unknown {
		add("not known: %s", text)
	}
	if len(k.Moved) > 0 {
		moved := make([]string, 0, maxMoved)
		for _, c := range k.Moved[:min(len(k.Moved), maxMoved)] {
			moved = append(moved, fmt.Sprintf("%s +%d", c.What, c.Rose))
		}
		if more := len(k.Moved) - maxMoved; more > 0 {
			moved = append(moved, fmt.Sprintf("and %d more", more))
		}
		add("rose: %s", strings.Join(moved, "; "))
	}
	return lines
}

func upText(up bool) string {
	if up {
		return "up"
	}
	return "DOWN"
}

func addressText(v *desired.KernelView) string {
	if len(v.Addresses) == 0 {
		return "no address"
	}
	texts := make([]string, 0, len(v.Addresses))
	for _, p := range v.Addresses {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, " ")
}

// securityLines says which rules the port has, and what was dropped.
func securityLines(v *desired.KernelView) (lines []string) {
	if v.Security.Mode != desired.SecurityEnforced {
		return []string{"port security: " + v.Security.Mode}
	}
	text := "none"
	if r := v.Security.Rules; r != nil {
		allowed := make([]string, 0, len(r.Addresses)+len(r.Relaxed))
		for _, ip := range r.Addresses {
			allowed = append(allowed, ip.String())
		}
		text = fmt.Sprintf("%s lets through %s", r.Port, strings.Join(append(append([]string{r.MAC.String()}, allowed...), r.Relaxed...), " "))
	}
	lines = append(lines, "port security: "+text)
	for what, drops := range map[string]map[string]uint64{"dropped at the port: ": v.Drops, "dropped at the underlay: ": v.Underlay} {
		if text := dropText(drops); text != "" {
			lines = append(lines, what+text)
		}
	}
	slices.Sort(lines[1:])
	return lines
}

func dropText(drops map[string]uint64) string {
	var texts []string
	for reason, n := range drops {
		if n > 0 {
			texts = append(texts, fmt.Sprintf("%s %d", reason, n))
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}
