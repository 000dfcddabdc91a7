package mutants

// storeTransport are the mutants of what servers send each other, and of who leads.
var storeTransport = []Mutant{}
