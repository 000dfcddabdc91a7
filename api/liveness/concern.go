package liveness

import (
	"fmt"
	"slices"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

// Concern says which objects of a kernel a barrier waits for, of those that a CN lists
// as not being as the log wants them (SAFETY L2). A vnet's own device concerns each
// barrier with the vnet among its scopes.
type Concern struct {
	VNets []uint32   `json:"vnets,omitempty"` // everything on them
	NICs  []log.MAC  `json:"nics,omitempty"`  // their links, and the entries about them
	VMs   []log.UUID `json:"vms,omitempty"`   // the links of their NICs
}

// MaxConcerned bounds the objects of a Concern. A barrier that concerns more waits for
// everything.
const MaxConcerned = 1 << 14

// Bounded returns c, or nil (everything) if it is over MaxConcerned.
func (c *Concern) Bounded() *Concern {
	if c == nil || len(c.VNets)+len(c.NICs)+len(c.VMs) > MaxConcerned {
		return nil
	}
	return c
}

// Waiting is an object that a CN's kernel does not have as the log wants it.
type Waiting struct {
	Object string     `json:"object"` // what it is, and why it is not there
	NIC    *log.MAC   `json:"nic,omitempty"`
	VM     *log.UUID  `json:"vm_uuid,omitempty"`
	VNet   uint32     `json:"vnet_id,omitempty"`
	Idle   bool       `json:"idle,omitempty"`        // its VM is not to run: no barrier waits for it
	Retry  *time.Time `json:"next_try,omitempty"`    // nil: with the next pass
	CN     *log.UUID  `json:"cn_uuid,omitempty"`     // in Verdict.Absent
	Host   string     `json:"cn_hostname,omitempty"` // in Verdict.Absent
}

// FormOf returns an object of a list in the form of answers.
func FormOf(w *feed.Wait) Waiting {
	f := Waiting{Object: w.String(), VNet: w.VNet, Idle: w.Idle}
	if !w.NIC.IsZero() {
		f.NIC = &w.NIC
	}
	if !w.VM.IsZero() {
		f.VM = &w.VM
	}
	if w.RetryAt != 0 {
		at := time.Unix(int64(w.RetryAt), 0).UTC()
		f.Retry = &at
	}
	return f
}

// Bounds of what a Verdict names.
const (
	maxObjects = 8   // objects of one Laggard
	MaxAbsent  = 100 // objects of Verdict.Absent
	// MaxShown bounds the objects of a session in an answer.
	MaxShown = 32
)

// FormsOf returns the first MaxShown objects of a list in the form of answers.
func FormsOf(list []feed.Wait) []Waiting {
	forms := make([]Waiting, 0, min(len(list), MaxShown))
	for i := range list[:cap(forms)] {
		forms = append(forms, FormOf(&list[i]))
	}
	return forms
}

// CountWaits counts the objects of a list that barriers wait for, and those that are idle.
func CountWaits(list []feed.Wait) (waiting, idle int) {
	for i := range list {
		if list[i].Idle {
			idle++
		} else {
			waiting++
		}
	}
	return waiting, idle
}

// concern is a Concern to look things up in.
type concern struct {
	all        bool
	on, within map[uint32]bool // vnets of the scopes, and those of Concern.VNets
	nics       map[log.MAC]bool
	vms        map[log.UUID]bool
}

func concernOf(q *Query) *concern {
	c := &concern{all: q.Concern == nil, on: map[uint32]bool{}}
	for _, scope := range q.Scopes {
		if scope.Type == log.ScopeVNet {
			c.on[scope.VNet] = true
		}
	}
	if !c.all {
		c.within, c.nics, c.vms = setOf(q.Concern.VNets), setOf(q.Concern.NICs), setOf(q.Concern.VMs)
	}
	return c
}

func setOf[T comparable](list []T) map[T]bool {
	set := make(map[T]bool, len(list))
	for _, x := range list {
		set[x] = true
	}
	return set
}

// has reports whether a barrier waits for an object, or would if that was not idle.
func (c *concern) has(w *feed.Wait) bool {
	if c.all {
		return true
	}
	switch w.Kind {
	case feed.WaitVNet:
		return c.on[w.VNet] || c.within[w.VNet]
	case feed.WaitNIC, feed.WaitEntry:
		// Of what is left of a NIC that is gone, neither the vnet nor the VM is known.
		unknown := w.VNet == 0 && len(c.within) > 0 || w.VM.IsZero() && len(c.vms) > 0 && len(c.nics) == 0
		return c.nics[w.NIC] || c.vms[w.VM] || c.within[w.VNet] || unknown || w.Kind == feed.WaitEntry && c.nics[w.Peer]
	}
	return true
}

// held returns the objects of a session's list that a barrier waits for, and those that it
// would wait for if their VMs were to run.
func (c *concern) held(session *Session) (waited, idle []*feed.Wait) {
	for i := range session.Waits {
		switch w := &session.Waits[i]; {
		case !c.has(w):
		case w.Idle:
			idle = append(idle, w)
		default:
			waited = append(waited, w)
		}
	}
	return waited, idle
}

// name fills in which objects a CN lacks, and returns the reason.
func (l *Laggard) name(waited []*feed.Wait) string {
	l.Waiting = len(waited)
	for _, w := range waited[:min(len(waited), maxObjects)] {
		l.Objects = append(l.Objects, FormOf(w))
	}
	reason := "its kernel lacks " + waited[0].String()
	if more := len(waited) - 1; more > 0 {
		reason += fmt.Sprintf(", and %d more", more)
	}
	return reason
}

// absent notes what a CN does not have because a VM is not to run.
func (v *Verdict) absent(l *Laggard, idle []*feed.Wait) {
	v.AbsentTotal += len(idle)
	for _, w := range idle[:min(len(idle), MaxAbsent)] {
		f := FormOf(w)
		f.CN, f.Host = &l.CN, l.Hostname
		v.Absent = append(v.Absent, f)
	}
}

// cut sorts Absent by CN and leaves MaxAbsent of it.
func (v *Verdict) cut() {
	slices.SortStableFunc(v.Absent, func(a, b Waiting) int { return a.CN.Compare(*b.CN) })
	v.Absent = v.Absent[:min(len(v.Absent), MaxAbsent)]
}
