package history

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of a history. A test of 60 simulated seconds needs no more, and a file that was
// edited by hand should not fill the memory.
const (
	leastServers, mostServers   = 3, 5
	leastAgents, mostAgents     = 1, 50
	leastReplicas, mostReplicas = 0, 2
	leastClients, mostClients   = 1, 32
	mostWindow                  = 1_000_000
	mostVMs                     = 1_000
	mostFaults                  = 1_000
	mostDuration                = 24 * time.Hour
	// BadClock is how far off a server's clock may be without being one that the others
	// must outvote (raftstore.Config.MaxClockOffset is 3 s).
	BadClock = time.Second
)

// Validate says what is wrong with a history: an error names the fault by its place in the
// file, counted from 1, what is wrong and what to do. A history that it accepts can be run, and
// the cluster must survive it.
func (h History) Validate() error {
	if err := h.validateSize(); err != nil {
		return err
	}
	var before time.Duration
	for i, f := range h.Faults {
		if err := h.validateFault(f); err != nil {
			return fmt.Errorf("fault %d (%s): %w", i+1, f, err)
		}
		if f.At < before {
			return fmt.Errorf("fault %d (%s): it comes before fault %d; order the faults by at", i+1, f, i)
		}
		before = f.At
	}
	if err := h.validateOverlaps(); err != nil {
		return err
	}
	return h.validateSurvival()
}

func (h History) validateSize() error {
	for _, size := range []struct {
		name           string
		n, least, most int
	}{
		{"servers", h.Servers, leastServers, mostServers},
		{"agents", h.Agents, leastAgents, mostAgents},
		{"replicas", h.Replicas, leastReplicas, mostReplicas},
		{"clients", h.Clients, leastClients, mostClients},
		{"window", h.Window, 0, mostWindow},
		{"vms", h.VMs, 0, mostVMs},
	} {
		if size.n < size.least || size.n > size.most {
			return fmt.Errorf("%s: %d is outside of %d to %d; choose a number in it", size.name, size.n, size.least, size.most)
		}
	}
	if h.Duration < time.Second || h.Duration > mostDuration {
		return fmt.Errorf("duration: %v is outside of 1s to %v; choose a time in it", h.Duration, mostDuration)
	}
	if len(h.Faults) > mostFaults {
		return fmt.Errorf("faults: %d are more than %d; take some out", len(h.Faults), mostFaults)
	}
	return nil
}

func (h History) validateFault(f Fault) error {
	form, known := forms[f.Kind]
	if !known {
		return fmt.Errorf("kind: %q is unknown; the kinds are %s", f.Kind, joined(Kinds()))
	}
	if err := h.validateMachine("on", f.On, form.on); err != nil {
		return err
	}
	if err := h.validateTo(f, form); err != nil {
		return err
	}
	if form.n == (bounds{}) && f.N != 0 {
		return fmt.Errorf("n: a fault %s has no number; take it out", f.Kind)
	}
	if f.N < form.n.least || f.N > form.n.most {
		return fmt.Errorf("n: %d is outside of %d to %d %s; choose a number in it", f.N, form.n.least, form.n.most, form.what)
	}
	switch {
	case f.At < 0 || f.At > h.Duration:
		return fmt.Errorf("at: %v is not within the duration of %v", f.At, h.Duration)
	case form.lasts && f.For <= 0:
		return fmt.Errorf("for: a fault %s must end; say after how long", f.Kind)
	case !form.lasts && f.For != 0:
		return fmt.Errorf("for: a fault %s is an instant; take it out", f.Kind)
	case f.For > h.Duration || f.At+f.For > h.Duration:
		return fmt.Errorf("for: it ends at %v, after the duration of %v; end it earlier", f.At+f.For, h.Duration)
	case (f.Kind == Rotate || f.Kind == Revoke || f.Kind == Spoil) && !h.TLS:
		return fmt.Errorf("kind: a fault %s needs certificates; set tls", f.Kind)
	}
	return nil
}

func (h History) validateTo(f Fault, form form) error {
	if f.To == "" {
		if form.needTo {
			return fmt.Errorf("to: a fault %s needs the other end; name %s", f.Kind, anywhere)
		}
		return nil
	}
	if !form.to {
		return fmt.Errorf("to: a fault %s has no other end; take it out", f.Kind)
	}
	if f.To == f.On {
		return fmt.Errorf("to: %s is on itself; name another", f.To)
	}
	return h.validateMachine("to", f.To, anywhere)
}

// validateMachine checks that a name is that of one of the history's machines, of those in may.
func (h History) validateMachine(field, name string, may place) error {
	if name == "" {
		if may&onNobody != 0 {
			return nil
		}
		return fmt.Errorf("%s: it is empty; name %s", field, may)
	}
	kind, n, ok := machine(name)
	most := map[place]int{onServer: h.Servers, onAgent: h.Agents, onClient: h.Clients, onReplica: h.Replicas}[kind]
	switch {
	case !ok:
		return fmt.Errorf("%s: %q is no name; servers are s1 and so on, agents cn1, clients c1, replicas n1", field, name)
	case may == onNobody:
		return fmt.Errorf("%s: %s is one machine, and the fault is the cluster's; take it out", field, name)
	case may&kind == 0:
		return fmt.Errorf("%s: %s is %s; name %s", field, name, kind, may)
	case most == 0:
		return fmt.Errorf("%s: there is no %s, because the history has no replicas; give it some", field, name)
	case n > most:
		return fmt.Errorf("%s: there is no %s, because the last is %s%d", field, name, strings.TrimRight(name, "0123456789"), most)
	}
	return nil
}

// machine reads a name.
func machine(name string) (kind place, n int, ok bool) {
	digits := strings.TrimLeft(name, "snc")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || strconv.Itoa(n) != digits {
		return 0, 0, false
	}
	kind = map[string]place{"s": onServer, "cn": onAgent, "c": onClient, "n": onReplica}[strings.TrimSuffix(name, digits)]
	return kind, n, kind != 0
}

// String is for messages.
func (p place) String() string {
	var names []string
	for _, one := range []struct {
		p    place
		name string
	}{{onServer, "a server"}, {onAgent, "an agent"}, {onClient, "a client"}, {onReplica, "a replica"}, {onNobody, "nobody"}} {
		if p&one.p != 0 {
			names = append(names, one.name)
		}
	}
	return strings.Join(names, " or ")
}

// validateOverlaps checks that nothing is done to a process that another fault has ended or
// paused. The whole cluster is stopped for a restore.
func (h History) validateOverlaps() error {
	for i, f := range h.Faults {
		for j, g := range h.Faults[:i] {
			if collide(g, f) {
				return fmt.Errorf("fault %d (%s): fault %d (%s) is not over before %v; choose another time or machine", i+1, f, j+1, g, busyUntil(g))
			}
		}
	}
	return nil
}

// RestoreTakes is how long an operator may take to restore the cluster; nothing else happens
// to the servers meanwhile.
const RestoreTakes = 10 * time.Second

func busyUntil(f Fault) time.Duration {
	if f.Kind == Restore {
		return f.At + RestoreTakes
	}
	if !forms[f.Kind].ends {
		return f.At + f.For
	}
	return f.At + f.For + KillSlack
}

// revokedAndLost reports whether a server is revoked while another one has no copy of the log
// yet: a certificate that is issued after a revocation is good once a majority has recorded it,
// and of three servers one is left.
func revokedAndLost(f, g Fault) bool {
	if g.Kind == Revoke {
		f, g = g, f
	}
	onRevoked, _, _ := machine(f.On)
	onLost, _, _ := machine(g.On)
	if f.Kind != Revoke || !g.Kind.loses() || onRevoked != onServer || onLost != onServer || f.On == g.On {
		return false
	}
	return f.At < busyUntil(g)+RejoinTakes && g.At < busyUntil(f)+RejoinTakes
}

// RejoinTakes is how long a server may take, after it lost its copy of the log or its
// certificate, until it has what makes it one of the majority.
const RejoinTakes = 10 * time.Second

// collide reports whether two faults cannot both be done, because of the same process.
func collide(f, g Fault) bool {
	if revokedAndLost(f, g) {
		return true
	}
	together := f.At < busyUntil(g) && g.At < busyUntil(f)
	if !together {
		return false
	}
	if f.Kind == Restore || g.Kind == Restore {
		other := f
		if f.Kind == Restore {
			other = g
		}
		kind, _, _ := machine(other.On)
		form := forms[other.Kind]
		return kind == onServer || kind == onReplica || form.on&onNobody != 0
	}
	return f.On == g.On && forms[f.Kind].ends && forms[g.Kind].ends
}

// validateSurvival checks what the cluster survives: a majority of the servers keeps its copy
// of the log, and a majority of clocks is right. A replica that ever gets a vote counts as a server.
func (h History) validateSurvival() error {
	lost, wrong, votes := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, f := range h.Faults {
		kind, _, _ := machine(f.On)
		votes[f.On] = votes[f.On] || kind == onServer || f.Kind == Promote
	}
	backup := false
	for i, f := range h.Faults {
		switch {
		case f.Kind == Snapshot:
			backup = true
		case f.Kind == Restore && !backup:
			return fmt.Errorf("fault %d (%s): there is no backup yet; put a fault %s before it", i+1, f, Snapshot)
		case votes[f.On] && f.Kind.loses():
			lost[f.On] = true
		case votes[f.On] && f.wrongClock():
			wrong[f.On] = true
		}
		minority := (h.Servers - 1) / 2
		if len(lost) > minority {
			return fmt.Errorf("fault %d (%s): the copies of %d of %d servers are lost, which no cluster survives; let it be on %s", i+1, f, len(lost), h.Servers, names(lost, f.On))
		}
		if len(wrong) > minority {
			return fmt.Errorf("fault %d (%s): the clocks of %d of %d servers are more than %v off, so that an operator is needed; let it be on %s", i+1, f, len(wrong), h.Servers, BadClock, names(wrong, f.On))
		}
	}
	return nil
}

// wrongClock reports whether the fault makes a clock one that the others must outvote.
func (f Fault) wrongClock() bool {
	off := time.Duration(f.N) * time.Millisecond
	if f.Kind == Drift {
		off = time.Duration(float64(f.For) * float64(f.N) / 1e6)
	} else if f.Kind != Skew {
		return false
	}
	return off.Abs() > BadClock
}

// names lists all but one.
func names(set map[string]bool, but string) string {
	var all []string
	for name := range set {
		if name != but {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " or ")
}

func joined(kinds []Kind) string {
	var all []string
	for _, k := range kinds {
		all = append(all, string(k))
	}
	return strings.Join(all, ", ")
}
