package nodes

import (
	"rutter/api/internal/openapi"
	"rutter/api/liveness"
)

// Abouts describes the endpoints of this package.
func Abouts() map[string]openapi.About {
	const section = "Compute nodes"
	return map[string]openapi.About{
		"GET /feed":             {Section: section, Answers: "101: the connection becomes the feed of the node (package `log/feed`)", Status: 101},
		"GET /cns":              {Section: section, Answers: "the sessions with this server; with `everywhere` those of all servers, with `at` the compute nodes of the log at that seq", Query: []string{"everywhere", "at"}, Answer: []Session{}},
		"GET /cns/{id}":         {Section: section, Answers: "the session of one node, with what it holds back", Query: []string{"at"}, Answer: Session{}},
		"POST /cns/{id}/accept": {Section: section, Answers: "200 when the node may do what it held back: `{\"hold\": ID}`", Body: acceptForm{}, Answer: holdForm{}},
		"GET /cns/{id}/feed":    {Section: section, Answers: "what the node would be sent, as lines of JSON", Query: []string{"after"}, Answer: frameForm{}, Media: "application/x-ndjson"},
		"GET /cns/{id}/status":  {Section: section, Answers: "what the servers know of one node, wherever its session is: `session`; with `ask` what the node says of itself, `report`, and with `nic` what its kernel has of one of its NICs, `kernel`, or why it does not say: `unknown`", Query: []string{"ask", "nic"}, Answer: NodeStatus{}},
		"GET /vnets/{vnet}":       {Section: section, Answers: "the networks of a vnet, and for each node with NICs on it how many of their links are `programmed`, `behind`, `failing`, `idle` (their VMs are not to run) and `unknown`: those that need a look first, `limit` of them (1000; up to 2000) from `offset`", Query: []string{"limit", "offset"}, Answer: VNet{}},
		"GET /wait":             {Section: section, Answers: "whether each node concerned has programmed a seq, as soon as all have or at the deadline, with the nodes that have not, the reasons, the `objects` that they lack, and what is `absent` because a VM is not to run: `seq`, `scope`, `timeout`; `vm` with `scope` leaves only that VM's links and the devices of the vnets", Query: []string{"seq", "scope", "timeout", "vm"}, Answer: liveness.Verdict{}},
	}
}
