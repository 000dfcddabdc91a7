package designation

import (
	"fmt"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// MaxShown bounds the servers that a step lists, and those that it gives a reason for.
// CNAPI looks at 50 at a time.
const MaxShown = 50

// Step is what one filter or score did.
type Step struct {
	Step      string            `json:"step"`
	Remaining []log.UUID        `json:"remaining"` // the first MaxShown
	Count     int               `json:"remaining_count"`
	Reasons   map[string]string `json:"reasons,omitempty"` // by server, of the first MaxShown; skip: why it did nothing
}

// Result is the answer of Allocate.
type Result struct {
	Server *log.Server // nil: none is fit
	Score  int64       // of it, in millionths
	Left   Capacity    // of it, before the VM
	Steps  []Step
	// ForVolumes: none is left after the step that looks for the VMs whose volumes are
	// wanted.
	ForVolumes bool
	// Looked is how many servers, VMs and tickets were looked at, VMs as a sixteenth: they
	// take that much less time.
	Looked int
}

// candidate is a server that may be chosen.
type candidate struct {
	*log.Server
	facts    *Facts
	ratios   ratios
	promised promised
	left     Capacity
	score    int64 // millionths
}

// View calls fn with the state while nothing is applied; a later call may see a later
// state. What fn keeps are objects, which are never changed.
type View func(fn func(*projections.State))

// ViewOf is the view of a state that does not change meanwhile.
func ViewOf(s *projections.State) View { return func(fn func(*projections.State)) { fn(s) } }

// slice bounds the servers whose VMs are gathered in one view: so servers go on applying
// changes during a search. What takes time, reading JSON and counting, is done outside.
const slice = 128

// run is one search.
type run struct {
	view     View
	memo     *Memo
	defaults *Defaults
	req      *Request
	tickets  ticketed
	hints    locality
	list     []*candidate
	steps    []Step
	looked   int
	// reasons of the present step; skip is why it does nothing.
	reasons map[string]string
	skip    string
}

// step is a row of the pipeline. What it filters out is out, unless soft is set and it
// would leave none.
type step struct {
	name string
	keep func(*run, *candidate) (reason string) // "": it is kept
	do   func(*run)                             // for all at once
	soft bool
}

// volumesStep is the step by which CNAPI tells its two refusals apart.
const volumesStep = "Servers containing VMs required for volumes-from"

// pipeline is CNAPI's chain, in its order and by its names.
var pipeline = []step{
	{name: "Servers which have been setup", keep: keepSetup},
	{name: "Servers which are currently running", keep: keepRunning},
	{name: "Servers objects which are valid", keep: keepValid},
	{name: volumesStep, do: (*run).keepVolumes},
	{name: "Servers which are not reserved", keep: keepUnreserved},
	{name: "Servers supporting required NIC Tags", do: (*run).keepTags},
	{name: "Servers which meet image manifest and package platform requirements", keep: keepPlatforms},
	{name: "Servers with correct traits", keep: keepTraits},
	{name: "Servers which are not headnodes", do: (*run).keepHeadnodes},
	{name: "Force overprovisioning to fixed values", do: (*run).setRatios},
	{name: "Servers with same overprovision ratios as requested VM", do: (*run).keepRatios},
	{name: "Add VMs which have open provisioning tickets", keep: keepTold},
	{name: "Load info about all VMs for each server", do: (*run).loadVMs},
	{name: "Servers which have same existence of cpu_cap as package", do: (*run).keepCapness},
	{name: "Servers with more VMs than limit", keep: keepCount},
	{name: "Servers which are capable of requested virtualization", keep: keepHVM},
	{name: "Calculate unreserved resources on each server", do: (*run).setLeft},
	{name: "Servers with enough unreserved RAM", do: (*run).keepRAM},
	{name: "Servers with enough unreserved CPU", do: (*run).keepCPU},
	{name: "Servers with enough unreserved disk", do: (*run).keepDisk},
	{name: "Convert affinity to locality hints", do: (*run).setHints},
	{name: "Servers with requested hard locality considered", do: (*run).keepStrict},
	{name: "Servers which are not in the reservoir", keep: keepReservoir, soft: true},
	{name: "Filter out the largest and most empty servers", do: (*run).keepSmall},
	{name: "Servers with requested soft locality considered", do: (*run).keepNear},
	{name: "Score servers based on unreserved RAM", do: (*run).scoreRAM},
	{name: "Score servers based on unreserved disk", do: (*run).scoreDisk},
	{name: "Score servers based on number of zones belonging to owner", do: (*run).scoreOwner},
	{name: "Score servers running newer platforms more highly", do: (*run).scorePlatform},
	{name: "Score servers by an order that follows from the VM", do: (*run).scoreOrder},
}

// Allocate chooses a server for a VM. The open tickets are read before the VMs, whose
// tickets are released when the log has them: so a VM that is being made counts, whatever
// changes during the search.
func Allocate(view View, m *Memo, d *Defaults, req *Request) *Result {
	r := &run{view: view, memo: m, defaults: d, req: req, tickets: ticketsOf(view)}
	all := serversOf(view, req.Servers, nil)
	room := make([]candidate, len(all))
	r.list = make([]*candidate, len(all))
	for i, server := range all {
		room[i].Server = server
		r.list[i] = &room[i]
	}
	r.looked = len(all) + r.tickets.n
	r.steps = append(r.steps, r.step("Received by DAPI"))
	result := &Result{}
	for i := range pipeline {
		if len(r.list) == 0 {
			break
		}
		r.apply(&pipeline[i])
		result.ForVolumes = len(r.list) == 0 && pipeline[i].name == volumesStep
	}
	m.trimTo(view)
	result.Steps, result.Looked = r.steps, r.looked
	if best := r.best(); best != nil {
		result.Server, result.Score, result.Left = best.Server, best.score, best.left
	}
	return result
}

func (r *run) apply(p *step) {
	r.reasons, r.skip = map[string]string{}, ""
	before := r.list
	if p.do != nil {
		p.do(r)
	} else {
		r.filter(func(c *candidate) string { return p.keep(r, c) })
	}
	if p.soft && len(r.list) == 0 {
		r.list, r.reasons = before, nil
		r.skip = "it would leave none"
	}
	if r.skip != "" {
		r.reasons = map[string]string{"skip": r.skip}
	}
	r.steps = append(r.steps, r.step(p.name))
}

// filter keeps those for whom reason says nothing.
func (r *run) filter(reason func(c *candidate) string) {
	kept := make([]*candidate, 0, len(r.list))
	for _, c := range r.list {
		if why := reason(c); why != "" {
			r.because(c, why)
			continue
		}
		kept = append(kept, c)
	}
	r.list = kept
}

// because keeps the reason why a server was left out, or how it was scored.
func (r *run) because(c *candidate, why string) {
	if len(r.reasons) < MaxShown {
		r.reasons[c.UUID.String()] = why
	}
}

func (r *run) step(name string) Step {
	s := Step{Step: name, Remaining: make([]log.UUID, 0, min(len(r.list), MaxShown)), Count: len(r.list)}
	for _, c := range r.list[:min(len(r.list), MaxShown)] {
		s.Remaining = append(s.Remaining, c.UUID)
	}
	if len(r.reasons) > 0 {
		s.Reasons = r.reasons
	}
	return s
}

func (r *run) loadVMs() {
	vms, at := 0, 0
	eachLoad(r.view, len(r.list), func(i int) log.UUID { return r.list[i].UUID }, func(on []*log.VM) {
		c := r.list[at]
		at++
		c.promised = r.memo.load(on, c.UUID, r.req.Owner, &r.tickets)
		vms += int(c.promised.count)
		if len(r.reasons) < MaxShown {
			r.reasons[c.UUID.String()] = fmt.Sprintf("%d VMs loaded", c.promised.count)
		}
	})
	r.looked += vms / 16
}

func (r *run) setRatios() {
	for _, c := range r.list {
		c.ratios = r.defaults.ratiosOf(c.Server)
	}
	if r.defaults.DisableOverride {
		r.skip = "disable_override_overprovisioning is set"
	}
}

func (r *run) setLeft() {
	for _, c := range r.list {
		c.left = leftOf(c.Server, c.facts, &c.promised, c.ratios, r.defaults)
	}
}

// best is the candidate with the highest score; of equal ones that which comes first in
// the order of the VM.
func (r *run) best() *candidate {
	if len(r.list) == 0 {
		return nil
	}
	return slices.MinFunc(r.list, func(a, b *candidate) int {
		if a.score != b.score {
			if a.score > b.score {
				return -1
			}
			return 1
		}
		return r.compareOrder(a, b)
	})
}
