package mutants

// nodeRights are the mutants of rights, limits and other surfaces.
var nodeRights = []Mutant{
	{
		Name: "rights-foreign-writes-guarded", File: "projections/rules/rights.go",
		Old:    "\t\tif !d.rules(op.Kind).Guarded || triton(d)",
		New:    "\t\tif true || triton(d)",
		Breaks: "a program without a certificate writes what is guarded",
		Rules:  []string{"K2"},
		Own:    []string{"projections/rules.TestGrants"},
	},
	{
		Name: "rights-node-writes-anothers", File: "projections/rules/rights.go",
		Old: `	d.notOneOf(op, op.ID)
	return false
}

// owns reports`,
		New: `	return true
}

// owns reports`,
		Breaks: "a node writes the objects of others",
		Rules:  []string{"I1"},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-node-takes", File: "projections/rules/rights.go",
		Old:    "\tif !d.owns(by.CN, after, rules) || !rules.special.mayBeTaken(d, by.CN, before, after) {",
		New:    "\tif !d.owns(by.CN, after, rules) {",
		Breaks: "a node makes what is another's its own",
		Rules:  []string{"I1"},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-node-writes-any-field", File: "projections/rules/rights.go",
		Old: `		if !slices.Contains(allowed, name) {
			foreign`,
		New: `		if false {
			foreign`,
		Breaks: "a node writes fields that are not its to write",
		Rules:  []string{"I1", "E2"},
		Own:    []string{"projections/rules.TestNodeDoesNotWidenWhatItsVMsAre"},
	},
	{
		Name: "rights-node-changes-owner", File: "projections/rules/rights.go",
		Old:    "\t\t\tallowed = slices.DeleteFunc(allowed, func(name string) bool { return name == rules.TenantField })",
		New:    "\t\t\tallowed = slices.Clone(allowed)",
		Breaks: "a node changes whose a VM is",
		Rules:  []string{"I1"},
		Own:    []string{"projections/rules.TestANodeDoesNotChangeAnOwner"},
	},
	{
		Name: "rights-limit-off-by-one", File: "projections/rules/rights.go",
		Old:    "func(x projections.Index) bool { return d.Count(x, l.most) >= l.most }",
		New:    "func(x projections.Index) bool { return d.Count(x, l.most) > l.most }",
		Breaks: "a node may have one object more than its limit",
		Rules:  []string{"W1"},
		Own:    []string{"projections/rules.TestObjectsOfACN"},
	},
	{
		Name: "rights-refusal-tells", File: "projections/rules/rights.go",
		Old: `		r, taken := d.Find(after)
		if taken && !d.owns(cn, r.Object, rules) || !taken`,
		New: `		r, taken := d.Find(after)
		_ = r
		if !taken`,
		Breaks: "a node learns from a refusal what others have",
		Rules:  []string{"I3"},
		Own:    []string{"projections/rules.TestACNLearnsNothingFromARefusal"},
	},
	{
		Name: "rights-node-takes-vm-of-task", File: "projections/rules/rights.go",
		Old:    "\treturn elsewhere || newest.ServerUUID != cn, newest",
		New:    "\treturn elsewhere, newest",
		Breaks: "a node makes a VM that a task makes elsewhere",
		Rules:  []string{"I1"},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-node-makes-nic-of-anothers-vm", File: "projections/rules/rights.go",
		Old: `		if vm := vmOfNIC(d, n); vm == nil || vm.ServerUUID != cn {
			return false
		}`,
		New: `		if vm := vmOfNIC(d, n); vm == nil {
			return false
		}`,
		Breaks: "a node makes a NIC for a VM of another node",
		Rules:  []string{"I2"},
		Own:    []string{"projections/rules.TestACNLearnsNothingFromARefusal"},
	},
	{
		Name: "rights-node-takes-primary", File: "projections/rules/rights.go",
		Old:    "\t\tif other := o.(*log.NIC); other.Primary && other.MAC != n.MAC && projections.CNOf(other) != cn {",
		New:    "\t\tif other := o.(*log.NIC); other.Primary && other.MAC != n.MAC && false {",
		Breaks: "a node takes the primary mark from a NIC of another node",
		Rules:  []string{"I1"},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-any-network-is-open", File: "projections/rules/rights.go",
		Old:    "\tif net == nil || !stays && !mayProvision(d, n, net) {",
		New:    "\tif net == nil {",
		Breaks: "a node makes NICs on networks that are closed to it",
		Rules:  []string{"I2"},
		Own:    []string{"projections/rules.TestACNMakesNoNICOnANetworkThatItIsNotOn"},
	},
	{
		Name: "rights-any-address-is-free", File: "projections/rules/rights.go",
		Old:    "\tif ip.IsValid() && !isFree(d, net, n, ip) {",
		New:    "\tif false {",
		Breaks: "a node takes addresses that are not handed out",
		Rules:  []string{"I2"},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-kept-address-is-free", File: "projections/rules/rights.go",
		Old:    "\tif o := ipObject(d, net.UUID, ip); o != nil && (o.BelongsToUUID",
		New:    "\tif o := ipObject(d, net.UUID, ip); false && (o.BelongsToUUID",
		Breaks: "a node takes an address that is kept for another",
		Rules:  []string{"I2"},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-nics-stay-behind", File: "projections/rules/rights.go",
		Old:    `		if n := o.(*log.NIC); n.BelongsToType == "zone" && n.CNUUID == before.ServerUUID {`,
		New:    "\t\tif n := o.(*log.NIC); false && n.CNUUID == before.ServerUUID {",
		Breaks: "a VM moves and leaves its NICs behind",
		Rules:  []string{"I1"},
		Own:    []string{"projections/rules.TestAVMMovesWithItsNICs"},
	},
}
