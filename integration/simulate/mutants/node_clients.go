package mutants

// nodeClients are the mutants of what others than agents are told: those that ask SVP, listeners
// of Triton's changefeed, and the service of VMMs.
var nodeClients = []Mutant{
	{
		Name: "feed-rings-of-others", File: "api/feedserver/receive.go",
		Old:    "\t\t\tif !known || rec.Object.(*log.VMM).SledID == u.who.UUID {",
		New:    "\t\t\tif _ = rec; known || !known {",
		Breaks: "a node has servers pull VMMs of other nodes from it",
		Rules:  []string{"I1"}, Past: Survivor,
		Own: []string{"api/feedserver.TestRingsOfOthers"},
	},
	{
		Name: "changefeed-gap", File: "api/triton/changefeed/hub.go",
		Old:    "\t\tif want := after.Seq + 1 + log.Seq(i); e.Seq != want {",
		New:    "\t\tif want := after.Seq + 1 + log.Seq(i); e.Seq < want {",
		Breaks: "listeners of Triton's changefeed miss an entry without an end of their connection",
		Rules:  []string{"F6"}, Past: Survivor,
		Own: []string{"api/triton/changefeed.TestGapInTheLog"},
	},
	{
		Name: "svp-address-of-another-node", File: "varp/shootdowns.go",
		Old: `			delete(s.readers, cn) // the address is another node's now
			r = nil
`,
		New:    "",
		Breaks: "a node with the underlay address of another one is not told what that one knew",
		Rules:  []string{"F7"}, Past: Survivor,
		Own: []string{"varp.TestAddressOfAnotherNode"},
	},
	{
		Name: "svp-mac-of-any-vnet", File: "projections/lookup.go",
		Old:    "\tif r == nil || r.home() != log.VNetScope(vnet) {",
		New:    "\tif r == nil {",
		Breaks: "SVP answers where a MAC is to whoever asks of another vnet",
		Rules:  []string{"I3"},
	},
	{
		Name: "changefeed-resumes-past-one", File: "api/triton/changefeed/hub.go",
		Old:    "\t\t\tl.next = at.Seq + 1\n",
		New:    "\t\t\tl.next = at.Seq + 2\n",
		Breaks: "a listener of Triton's changefeed that goes on misses the entry behind its last item",
		Rules:  []string{"F6"},
	},
	{
		Name: "report-unknown-is-done", File: "api/triton/netreport/service.go",
		Old: `		return report.Outcome{Unknown: err.Error()}
	}
	return report.Outcome{Last`,
		New: `		return report.Outcome{Last: 1}
	}
	return report.Outcome{Last`,
		Breaks: "a node is told that a NIC is in the log whose change did not get there",
		Rules:  []string{"P3"},
		Own:    []string{"api/triton/netreport.TestUnknownOutcome"},
	},
	{
		Name: "wait-for-nobody", File: "api/internal/nodes/barrier.go",
		Old:    "\tq.Concern = c.concern()\n",
		New:    "\tq.Concern, q.Scopes = c.concern(), nil\n",
		Breaks: "a wait for the compute nodes of a change waits for none of them",
		Rules:  []string{"B2"},
	},
}
