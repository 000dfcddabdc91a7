package mutants

// nodeFeed are the mutants of what nodes are sent, and of barriers and leases.
var nodeFeed = []Mutant{
}
