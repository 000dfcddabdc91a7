package mutants

// storeLog are the mutants of raft's log below the store, of its disk and of clocks.
var storeLog = []Mutant{}
