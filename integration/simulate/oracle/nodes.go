package oracle

import (
	"maps"
	"slices"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

// deletes looks for steps that remove something while the view is not complete.
func deletes(p *past, report report) {
	for _, r := range p.records {
		if e, ok := r.Event.(seen.Step); ok && e.Deletes && !e.Complete {
			report("%s at %v did %q and knew only a part", r.Who, r.At, e.Text)
		}
	}
}

// bookmark looks for agents that went back. One that starts may have an older cache; one that
// got nothing whole yet begins anew, at 0.
func bookmark(p *past, report report) {
	at := make(map[string]log.Cursor)
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Process:
			delete(at, r.Who)
		case seen.Reset:
			delete(at, e.Stream) // it begins anew
		case seen.Restored:
			clear(at)
		case seen.Agent:
			if before := at[r.Who]; e.Head.Seq > 0 && e.Head.Seq < before.Seq && e.Head.Cluster == before.Cluster && !before.Cluster.IsZero() {
				report("%s was at %s, and is at %s at %v", r.Who, before, e.Head, r.At)
			}
			if e.Programmed.Seq > e.Head.Seq {
				report("%s has programmed %d, and its bookmark is %d", r.Who, e.Programmed.Seq, e.Head.Seq)
			}
			at[r.Who] = e.Head
		}
	}
}

// kernels looks at the last that was seen of each agent.
func kernels(p *past, report report) {
	latest := make(map[string]seen.Agent)
	for _, r := range p.records {
		if e, ok := r.Event.(seen.Agent); ok {
			latest[r.Who] = e
			if e.Compared && len(e.Differences) > 0 {
				report("%s said at %v that its kernel has all up to %d, and it differs in %d things, first: %s", r.Who, r.At, e.Programmed.Seq, len(e.Differences), e.Differences[0])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(latest)) {
		e := latest[name]
		switch {
		case len(e.Differences) > 0:
			report("the kernel of %s differs from the log at the end in %d things, first: %s", name, len(e.Differences), e.Differences[0])
		case e.Desired != e.Kernel:
			report("the kernel of %s has %.200q at the end, and the log %.200q", name, e.Kernel, e.Desired)
		case len(p.entries) > 0 && e.Programmed.Seq != p.head():
			report("%s has programmed %d at the end, and the log is at %d", name, e.Programmed.Seq, p.head())
		case !e.Complete:
			report("%s knows only a part at the end", name)
		}
	}
}

// barrier looks for answers that were not true.
func barrier(p *past, report report) {
	for _, r := range p.records {
		e, ok := r.Event.(seen.Barrier)
		if !ok || !e.Done {
			continue
		}
		if len(e.Missing) > 0 {
			report("%s: the barrier of %d is done, and %v are missing", r.Who, e.Seq, e.Missing)
		}
		for _, node := range slices.Sorted(maps.Keys(e.Kernels)) {
			if lacks := e.Kernels[node]; lacks != "" {
				report("%s: the barrier of %d was done at %v, and the kernel of %s lacked: %s", r.Who, e.Seq, e.Until, node, lacks)
			}
		}
	}
}

// bounded looks for what grew over its bound.
func bounded(p *past, report report) {
	for _, r := range p.records {
		if e, ok := r.Event.(seen.Queue); ok && e.Bound > 0 && e.Size > e.Bound {
			report("%s: %s had %d at %v, and its bound is %d", r.Who, e.Name, e.Size, r.At, e.Bound)
		}
	}
}

// Lease is how long a compute node without a sign counts as running: the default of package
// api/liveness. A new leader waits as long, so that a node that is away for Away, and whose
// absence no other fault hides, is recorded.
const (
	Lease = 30 * time.Second
	Away  = 3 * Lease
)

// liveness compares what the log says of the compute nodes' presence with their faults. Agents
// have the hostnames of their servers as names.
func liveness(p *past, report report) {
	if len(p.entries) == 0 {
		return
	}
	names, status := make(map[string]log.UUID), make(map[log.UUID]string)
	lost := make(map[log.UUID]int)
	for _, e := range p.entries {
		if e.event == nil {
			return
		}
		server, ok := e.event.Object.(*log.Server)
		if !ok || e.event.Kind != log.KindServer {
			continue
		}
		names[server.Hostname] = server.UUID
		if status[server.UUID] == "running" && server.Status == "unknown" {
			lost[server.UUID]++
		}
		status[server.UUID] = server.Status
	}
	faults, began, away := 0, make(map[history.Fault]time.Duration), make(map[string]time.Duration)
	agents := make(map[string]bool)
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Agent:
			agents[r.Who] = true
		case seen.Fault:
			faults++
			if from, ok := began[e.Fault]; ok && e.Over && e.Err == "" && (e.Fault.Kind == history.Kill || e.Fault.Kind == history.Stop) {
				away[e.Fault.On] = max(away[e.Fault.On], r.At-from)
			}
			began[e.Fault] = r.At
		}
	}
	for _, name := range slices.Sorted(maps.Keys(agents)) {
		cn, ok := names[name]
		switch {
		case !ok:
		case status[cn] != "running":
			report("%s is %q in the log at the end, and its agent runs", name, status[cn])
		case faults == 0 && lost[cn] > 0:
			report("%s was %d times unknown, and there were no faults", name, lost[cn])
		case away[name] >= Away && lost[cn] == 0:
			report("%s was away for %v, and the log says that it ran", name, away[name])
		}
	}
}
