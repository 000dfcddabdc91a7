package plan

import (
	"fmt"
	"strings"
)

// Drift says what was wrong before a step that corrected a change by another program,
// as "sdcvxl5: forwarding entry 02:00:00:00:00:02 was gone or changed".
func (s Step) Drift() string {
	at := s.Link
	if s.Namespace != "" {
		at = strings.TrimSuffix(s.Namespace+"/"+s.Link, "/")
	}
	what := ""
	switch s.Op {
	case OpAddLink:
		what = "link was gone or rebuilt"
	case OpSetLink:
		what = s.driftOfLink()
	case OpDelLink:
		what = "link was added, or stood in the way"
	case OpSetProbes:
		what = s.Table() + ": app_probes were changed"
	case OpAddAddress:
		what = fmt.Sprintf("address %s was gone", s.Prefix)
	case OpDelAddress:
		what = fmt.Sprintf("address %s was added", s.Prefix)
	case OpSetRoute:
		what = fmt.Sprintf("route to %s was gone or changed", s.Prefix)
	case OpDelRoute:
		what = fmt.Sprintf("route to %s was added", s.Prefix)
	case OpSetFDB:
		what = fmt.Sprintf("forwarding entry %s was gone or changed", s.MAC)
	case OpDelFDB:
		what = fmt.Sprintf("forwarding entry %s was added", s.MAC)
	case OpSetNeigh:
		what = fmt.Sprintf("neighbour %s was gone or changed", s.Addr)
	case OpDelNeigh:
		what = fmt.Sprintf("neighbour %s was added", s.Addr)
	case OpWriteResolvers:
		what = "resolv.conf was gone or changed"
	case OpRemoveResolvers:
		what = "resolv.conf was added"
	case OpSetStatic:
		what = fmt.Sprintf("bridge entry %s was gone or changed", s.MAC)
	case OpDelStatic:
		what = fmt.Sprintf("bridge entry %s was added", s.MAC)
	case OpAddFlood:
		what = fmt.Sprintf("entry for all to %s was gone", s.Addr)
	case OpDelFlood:
		what = fmt.Sprintf("entry for all to %s was added", s.Addr)
	case OpSetRules:
		return "filter: " + s.Object.String() + ": rules were gone or changed"
	case OpDelRules:
		return "filter: " + s.Object.String() + ": rules were added"
	}
	return at + ": " + what
}

func (s Step) driftOfLink() string {
	var was []string
	if s.Change&ChangeUp != 0 {
		was = append(was, "was down")
	}
	if s.Change&ChangeMTU != 0 {
		was = append(was, "had another MTU")
	}
	if s.Change&ChangeMAC != 0 {
		was = append(was, "had another MAC")
	}
	if s.Change&ChangeQuietIPv6 != 0 {
		was = append(was, "was given IPv6 addresses")
	}
	if s.Change&ChangeUser != 0 {
		was = append(was, "had another user")
	}
	if s.Change&ChangeName != 0 {
		was = append(was, "was renamed")
	}
	if s.Change&ChangeDown != 0 {
		was = append(was, "was up")
	}
	if s.Change&ChangeMaster != 0 {
		was = append(was, "was no port of its bridge")
	}
	if s.Change&ChangeFlags != 0 {
		was = append(was, "had other flags as a bridge port")
	}
	if s.Change&ChangeBridge != 0 {
		was = append(was, "had other settings as a bridge")
	}
	if s.Change&ChangeMark != 0 {
		was = append(was, "had lost its mark")
	}
	return "link " + strings.Join(was, ", ")
}
