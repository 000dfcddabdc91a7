package mutants

// node are the mutants of agents, of the API, of rights and of limits.
var node = []Mutant{}
