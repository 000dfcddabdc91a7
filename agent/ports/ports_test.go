package ports

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"rutter/agent/filter"
	"rutter/log"
	"rutter/projections/desired"
)

// source is a table of n ports, of which each drops as many packets as its number.
type source struct {
	n   int
	err error
}

func (source) Mode() Mode { return Mode{Mode: desired.SecurityEnforced} }

func (s source) State(context.Context) (state filter.State, err error) {
	for i := range s.n {
		state.Ports = append(state.Ports, filter.Port{Index: uint32(i + 1), Name: fmt.Sprintf("port%d", i), MAC: log.MAC{2, 5: byte(i)}, AnyIP: i == 1})
	}
	return state, nil
}

func (s source) Counters(context.Context) (filter.Counters, error) {
	c := filter.Counters{Ports: map[uint32]map[filter.Reason]filter.Count{}, Underlay: map[filter.Reason]filter.Count{filter.ReasonPeer: {Packets: 3}, filter.ReasonInterface: {}}}
	for i := range s.n {
		c.Ports[uint32(i+1)] = map[filter.Reason]filter.Count{filter.ReasonIP: {Packets: uint64(i)}, filter.ReasonMAC: {Packets: uint64(2 * i)}, filter.ReasonND: {}}
	}
	return c, s.err
}

func TestRead(t *testing.T) {
	s := Read(t.Context(), source{n: 20}, func(mac log.MAC) Owner { return Owner{Alias: fmt.Sprintf("vm%d", mac[5])} })
	if len(s.Ports) != 20 || s.Failure != "" || len(s.Underlay) != 1 || s.Ports[1].Relaxed[0] != "allow_ip_spoofing" {
		t.Fatalf("%+v", s)
	}
	if got := s.Ports[3].Drops.String(); got != "mac 6, ip 3" {
		t.Errorf("drops: %q", got)
	}
	most, others := s.Most(10)
	if len(most) != 10 || others != 9 || most[0].NameOf() != "vm19" || most[9].NameOf() != "vm10" {
		t.Errorf("the first is %s of %d, %d others", most[0].NameOf(), len(most), others)
	}
}

// What cannot be read is said, and the rest is there.
func TestReadFails(t *testing.T) {
	s := Read(t.Context(), source{n: 2, err: errors.New("no answer")}, func(log.MAC) Owner { return Owner{} })
	if s.Failure != "no answer" || len(s.Ports) != 2 {
		t.Errorf("%+v", s)
	}
	off := Without{As: Mode{Mode: desired.SecurityUnsupported, Why: "no nf_tables", Required: true}}
	if s := Read(t.Context(), off, nil); s.Mode != off.As || len(s.Ports) != 0 {
		t.Errorf("%+v", s)
	}
	if s := Read(t.Context(), nil, nil); s.Mode.Mode != desired.SecurityOff {
		t.Errorf("%+v", s)
	}
}
