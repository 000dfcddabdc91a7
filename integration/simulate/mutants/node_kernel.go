package mutants

// nodeKernel are the mutants of what a node programs, and of its VMs.
var nodeKernel = []Mutant{
	{
		Name: "plan-fdb-left-behind", File: "agent/link/plan/plan_fabric.go",
		Old: `			if p.prune {
				step.Op, step.MAC = OpDelFDB`,
		New: `			if false {
				step.Op, step.MAC = OpDelFDB`,
		Breaks: "forwarding entries that the log lacks stay in the kernel",
		Rules:  []string{"B1"},
		Own:    []string{"agent/link/plan.TestPlanChanges"},
	},
	{
		Name: "plan-fdb-node-not-compared", File: "agent/link/plan/plan_fabric.go",
		Old:    "\t\t\tif !b.Permanent || a.Dst != b.Dst ||",
		New:    "\t\t\tif !b.Permanent ||",
		Breaks: "a forwarding entry that leads to an old node counts as right",
		Rules:  []string{"B1"}, Peer: "flannel#1247",
		Own: []string{"agent/link/plan.TestPlanChanges", "agent/link/plan.TestPlanComparesWholeEntries"},
	},
	{
		Name: "plan-fdb-permanence-not-compared", File: "agent/link/plan/plan_fabric.go",
		Old:    "\t\t\tif !b.Permanent || a.Dst != b.Dst ||",
		New:    "\t\t\tif a.Dst != b.Dst ||",
		Breaks: "a forwarding entry that ends by itself counts as right",
		Rules:  []string{"B1"},
		Own:    []string{"agent/link/plan.TestPlanComparesWholeEntries"},
	},
	{
		Name: "plan-neighbour-keeps-old-mac", File: "agent/link/plan/plan_fabric.go",
		Old: `				if a.MAC != b.MAC {
					set(a)
				}`,
		New:    "\t\t\t\t_ = b",
		Breaks: "a neighbour with an old MAC counts as right",
		Rules:  []string{"B1"}, Peer: "flannel#1247",
		Own: []string{"agent/link/plan.TestPlanComparesWholeEntries"},
	},
	{
		Name: "plan-neighbours-left-behind", File: "agent/link/plan/plan_fabric.go",
		Old: `				if p.prune {
					step.Op, step.Addr, step.MAC = OpDelNeigh`,
		New: `				if false {
					step.Op, step.Addr, step.MAC = OpDelNeigh`,
		Breaks: "neighbours that the log lacks stay in the kernel",
		Rules:  []string{"B1"},
		Own:    []string{"agent/link/plan.TestPlanChanges"},
	},
	{
		Name: "plan-fdb-deleted-unpruned", File: "agent/link/plan/plan_fabric.go",
		Old: `			if p.prune {
				step.Op, step.MAC = OpDelFDB`,
		New: `			if true {
				step.Op, step.MAC = OpDelFDB`,
		Breaks: "forwarding entries are deleted because of a view that is not complete",
		Rules:  []string{"F3"}, Peer: "headscale#1383",
		Own: []string{"agent/link/plan.TestPlanWithoutPruneKeepsEntries"},
	},
	{
		Name: "plan-neighbours-deleted-unpruned", File: "agent/link/plan/plan_fabric.go",
		Old: `				if p.prune {
					step.Op, step.Addr, step.MAC = OpDelNeigh`,
		New: `				if true {
					step.Op, step.Addr, step.MAC = OpDelNeigh`,
		Breaks: "neighbours are deleted because of a view that is not complete",
		Rules:  []string{"F3"}, Peer: "headscale#1383",
		Own: []string{"agent/link/plan.TestPlanWithoutPruneKeepsEntries"},
	},
	{
		Name: "plan-address-deleted-unpruned", File: "agent/link/plan/plan_fabric.go",
		Old:    "\t\tif p.prune && !w.Hold && !IsLinkLocal",
		New:    "\t\tif !w.Hold && !IsLinkLocal",
		Breaks: "addresses are deleted because of a view that is not complete",
		Rules:  []string{"F3"},
		Own:    []string{"agent/link/plan.TestPlanWithoutPruneKeepsEntries"},
	},
	{
		Name: "plan-links-deleted-unpruned", File: "agent/link/plan/plan.go",
		Old: `	if prune {
		p.pruneLinks(have.Links)
	}`,
		New:    "\tp.pruneLinks(have.Links)",
		Breaks: "links are deleted because of a view that is not complete",
		Rules:  []string{"F3"}, Peer: "headscale#1383",
		Own: []string{"agent/link/plan.TestPlanWithoutPruneDeletesNothing"},
	},
	{
		Name: "plan-foreign-links-deleted", File: "agent/link/plan/plan_fabric.go",
		Old: `p.gone[l.Key()] || !l.Ours {
				continue`,
		New: `p.gone[l.Key()] {
				continue`,
		Breaks: "links of other programs are deleted",
		Rules:  []string{"L3"},
		Own:    []string{"agent/link/plan.TestPlanForeign"},
	},
	{
		Name: "plan-neighbours-of-changed-mac", File: "agent/link/plan/plan_fabric.go",
		Old:    "\t\tif state.have != nil && state.have.MAC == mac {",
		New:    "\t\tif state.have != nil {",
		Breaks: "the neighbours of a link whose MAC is put right are not written again",
		Rules:  []string{"B1"},
		Own:    []string{"agent/link/plan.TestPlanComparesWholeEntries"},
	},
	{
		Name: "plan-route-keeps-old-gateway", File: "agent/link/plan/plan_fabric.go",
		Old: `		if a.Gateway != b.Gateway {
			set(a)
		}`,
		New:    "\t\t_ = b",
		Breaks: "a route with an old gateway counts as right",
		Rules:  []string{"B1"}, Peer: "flannel#1247",
		Own: []string{"agent/link/plan.TestPlanChanges"},
	},
	{
		Name: "plan-group-not-compared", File: "agent/link/plan/plan.go",
		Old:    "\tif want.Alias != have.Alias || want.Group != have.Group {",
		New:    "\tif want.Alias != have.Alias {",
		Breaks: "a link of ours that was put out of its group stays so",
		Rules:  []string{"L3"},
		Own:    []string{"agent/link/plan.TestPlanComparesWholeEntries"},
	},
	{
		Name: "plan-up-before-rules", File: "agent/link/plan/plan.go",
		Old:    "p.links, p.addresses, p.rules, p.ups,",
		New:    "p.links, p.addresses, p.ups, p.rules,",
		Breaks: "a port is up before its rules are there",
		Rules:  []string{"E1"},
		Own:    []string{"agent/link/plan.TestPlanSecuredFromNothing"},
	},
	{
		Name: "plan-peers-after-entries", File: "agent/link/plan/plan.go",
		Old:    "slices.Concat(p.rebuild, p.peers, p.links, p.addresses, p.rules, p.ups, p.fdb,",
		New:    "slices.Concat(p.rebuild, p.links, p.addresses, p.rules, p.ups, p.fdb, p.peers,",
		Breaks: "entries lead to a peer before it is admitted",
		Rules:  []string{"E3"},
		Own:    []string{"agent/link/plan.TestNoStepLeavesAGap"},
	},
	{
		Name: "plan-peers-removed-first", File: "agent/link/plan/plan.go",
		Old:    "\t\tp.delNeigh, p.delFDB, p.delRoutes, p.delAddresses, p.delLinks, p.delPeers, p.delRules)",
		New:    "\t\tp.delPeers, p.delNeigh, p.delFDB, p.delRoutes, p.delAddresses, p.delLinks, p.delRules)",
		Breaks: "a peer is removed while entries lead to it",
		Rules:  []string{"E3"},
		Own:    []string{"agent/link/plan.TestNoStepLeavesAGap"},
	},
	{
		Name: "filter-any-arp-sender", File: "agent/filter/program_ports.go",
		Old: `			all(owns(setMACs, inNetwork, senderMAC, 6), jump("arp-operation")),
			all(port(setAnyMAC), jump("arp-operation")),`,
		New:    `			jump("arp-operation"),`,
		Breaks: "a VM sends ARP with the MAC of another",
		Rules:  []string{"E2"},
		Unseen: "the kernel of a history forwards no frames",
		Own:    []string{"agent/filter.TestFrames"},
	},
	{
		Name: "filter-any-source-mac", File: "agent/filter/program_ports.go",
		Old: `			all(owns(setMACs, inLink, 6, 6), jump("ether")),
			all(port(setAnyMAC), jump("ether")),
			jump(dropChain(ReasonMAC)),`,
		New:    `			jump("ether"),`,
		Breaks: "a VM sends frames with the MAC of another",
		Rules:  []string{"E2"},
		Unseen: "the kernel of a history forwards no frames",
		Own:    []string{"agent/filter.TestFrames"},
	},
	{
		Name: "filter-any-ipv4-source", File: "agent/filter/program_ports.go",
		Old: `			jump(dropChain(ReasonIP)),
		}},
		// Clients look`,
		New: `			jump("ipv4-dhcp"),
		}},
		// Clients look`,
		Breaks: "a VM sends packets with the address of another",
		Rules:  []string{"E2"},
		Unseen: "the kernel of a history forwards no frames",
		Own:    []string{"agent/filter.TestFrames"},
	},
	{
		Name: "filter-dhcp-server", File: "agent/filter/program_ports.go",
		Old: `			all(udp(nil, dhcpClient), notPort(setDHCP), jump(dropChain(ReasonDHCPServer))),
`,
		New:    "",
		Breaks: "a VM answers the DHCP requests of others",
		Rules:  []string{"E2", "E6"},
		Unseen: "the kernel of a history forwards no frames",
		Own:    []string{"agent/filter.TestFrames"},
	},
	{
		Name: "filter-vxlan-of-any-interface", File: "agent/filter/program_ports.go",
		Old: `			all(byUnderlay, jump(dropChain(ReasonPeer))),
			jump(dropChain(ReasonInterface)),`,
		New:    "\t\t\tall(byUnderlay, jump(dropChain(ReasonPeer))),",
		Breaks: "VXLAN packets are taken from an interface that is not the underlay",
		Rules:  []string{"E3"},
		Unseen: "the kernel of a history forwards no frames",
		Own:    []string{"agent/filter.TestUnderlay"},
	},
	{
		Name: "filter-vxlan-of-any-peer", File: "agent/filter/program_ports.go",
		Old: `			all(byUnderlay, jump(dropChain(ReasonPeer))),
`,
		New: `			all(byUnderlay, accept()),
`,
		Breaks: "VXLAN packets are taken from senders that are no peers",
		Rules:  []string{"E3"},
		Unseen: "the kernel of a history forwards no frames",
		Own:    []string{"agent/filter.TestUnderlay"},
	},
	{
		Name: "netsync-half-known", File: "agent/netsync/core.go",
		Old:    "\tif in.place.Cluster.IsZero() || !in.place.Complete {",
		New:    "\tif in.place.Cluster.IsZero() {",
		Breaks: "NICs are written before all that the node must know was held",
		Rules:  []string{"F3"},
		Unseen: "nodes of a history run no VMMs",
		Own:    []string{"agent/netsync.TestPassOfHalfAView"},
	},
	{
		Name: "netsync-absent-is-gone", File: "agent/netsync/core.go",
		Old: `	if !ok || in.place.Seq < c.after[mac] {
		return nil, rec, false, false
	}`,
		New: `	if !ok {
		return nil, rec, true, false
	}`,
		Breaks: "a NIC that the node has not heard of counts as one that the log lacks",
		Rules:  []string{"F3"}, Peer: "headscale#1383",
		Unseen: "nodes of a history run no VMMs",
		Own:    []string{"agent/netsync.TestHistories"},
	},
	{
		Name: "netsync-older-answer", File: "agent/netsync/core.go",
		Old:    "f.Kind == log.KindNIC && c.foundSeq >= max(in.place.Seq, rec.Seq) {",
		New:    "f.Kind == log.KindNIC {",
		Breaks: "an answer of a server that is behind counts",
		Rules:  []string{"F2"}, Peer: "etcd#15271",
		Unseen: "nodes of a history run no VMMs",
		Own:    []string{"agent/netsync.TestAnswerOlderThanTheView"},
	},
	{
		Name: "netsync-takes-nic-of-migration", File: "agent/netsync/vmpass.go",
		Old: `		return // it runs there: this is its origin or its target
`,
		New: `		_ = here
`,
		Breaks: "a node takes the NIC of a VM that migrates from it",
		Rules:  []string{"I1"},
		Unseen: "nodes of a history run no VMMs",
		Own:    []string{"agent/netsync.TestNICOfAMigration"},
	},
	{
		Name: "netsync-new-id-each-try", File: "agent/netsync/vmpass.go",
		Old: `	if claim.Create.IsZero() {
		v.ledger.create`,
		New: `	if true {
		v.ledger.create`,
		Breaks: "a NIC is created with another change id at each try",
		Rules:  []string{"A2"},
		Unseen: "nodes of a history run no VMMs",
		Own:    []string{"agent/netsync.TestHistories"},
	},
	{
		Name: "vmm-destroyed-is-not-found", File: "agent/vminfo/vmmstate/vmm_http.go",
		Old: `	case errors.Is(err, ErrVMMFinal):
		code, name = http.StatusGone,`,
		New: `	case errors.Is(err, ErrVMMFinal):
		code, name = http.StatusNotFound,`,
		Breaks: "a VMM that has ended answers as one that never was",
		Rules:  []string{"I1"}, Peer: "omicron#10290",
		Unseen: "nodes of a history run no VMMs",
		Own:    []string{"agent/vminfo/vmmstate.TestVMMHTTP"},
	},
	{
		Name: "vmm-end-is-forgotten", File: "agent/vminfo/vmmstate/vmm_end.go",
		Old: `	m.setLocked(ended)
	return *m.vmms[id], nil`,
		New: `	m.setLocked(ended)
	delete(m.vmms, id)
	return ended, nil`,
		Breaks: "the last state of a VMM is lost when it is unregistered",
		Rules:  []string{"I1"}, Peer: "omicron#10290",
		Unseen: "nodes of a history run no VMMs",
		Own:    []string{"agent/vminfo/vmmstate.TestVMMHTTP"},
	},
	{
		Name: "vminfo-deletes-anothers-vm", File: "agent/vminfo/vmstore/store.go",
		Old:    "\tif !known || before.source != source {",
		New:    "\tif !known {",
		Breaks: "a source of VMs removes the VM of another source",
		Rules:  []string{"L3"},
		Unseen: "nodes of a history run no VMMs",
		Own:    []string{"agent/vminfo.TestStoreRefusesAnotherSource"},
	},
	{
		Name: "varpd-acknowledged-at-once", File: "agent/varpd/shootdown.go",
		Old: `		s.waiters = append(s.waiters, &record{from: b.from, id: r.ID, until: until})
`,
		New: `		b.from.end(r.ID)
`,
		Breaks: "a shootdown is acknowledged before its entry was asked again",
		Rules:  []string{"F7"},
		Unseen: "nodes of a history run no varpd",
		Own:    []string{"agent/varpd.TestRecordWaitsForItsAnswer"},
	},
	{
		Name: "varpd-failed-acknowledgement", File: "agent/varpd/shootdown.go",
		Old: `		p.putBack(ids)
`,
		New: `		p.removed(ids)
`,
		Breaks: "an acknowledgement that failed counts",
		Rules:  []string{"F7"},
		Unseen: "nodes of a history run no varpd",
		Own:    []string{"agent/varpd.TestAcknowledgementThatFails"},
	},
	{
		Name: "varpd-older-cache", File: "agent/varpd/doubt.go",
		Old:    "\treturn f.to.Unmap() != to.Addr || f.port != to.Port\n",
		New:    "\treturn false\n",
		Breaks: "the kernel gets the place of a MAC that an older cache of the server has, over the new one",
		Rules:  []string{"F7"}, Past: Survivor,
		Unseen: "nodes of a history run no varpd",
		Own:    []string{"agent/varpd.TestAnswerOfAnOlderCache"},
	},
	{
		Name: "resolvers-of-others-go", File: "agent/link/plan/resolvers.go",
		Old:    "\treturn n.isMine(mark.Cluster) && mark.Object == resolversObject+n.node.String()\n",
		New:    "\t_ = mark\n\treturn true\n",
		Breaks: "an agent removes the resolv.conf of the VMs of another agent on the machine",
		Rules:  []string{"L3"},
		Own:    []string{"agent/link/plan.TestWhoseResolversGo", "agent/link.TestResolversAfterALostCache"},
	},
	{
		Name: "resolvers-of-another-node-go", File: "agent/link/plan/resolvers.go",
		Old:    "\treturn n.isMine(mark.Cluster) && mark.Object == resolversObject+n.node.String()\n",
		New:    "\treturn n.isMine(mark.Cluster)\n",
		Breaks: "an agent removes the resolv.conf of the VMs of another node of its cluster, on the same machine",
		Rules:  []string{"L3"},
		Own:    []string{"agent/link/plan.TestWhoseResolversGo", "agent/link.TestResolversAfterALostCache"},
	},
	{
		Name: "resolvers-after-a-lost-cache", File: "agent/link/manager_marks.go",
		Old:    "\thave.Elsewhere = files\n",
		New:    "",
		Breaks: "a resolv.conf that an agent wrote before it lost its cache stays",
		Rules:  []string{"L3"}, Past: "resolv.conf files that stayed after a lost cache",
		Own: []string{"agent/link.TestResolversAfterALostCache"},
	},
}
