package mutants

// store are the mutants of the store: what it writes, remembers, restores and keeps.
var store = []Mutant{}
