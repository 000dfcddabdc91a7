package mutants

// nodeKernel are the mutants of what a node programs, and of its VMs.
var nodeKernel = []Mutant{
}
