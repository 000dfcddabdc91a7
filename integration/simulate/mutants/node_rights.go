package mutants

// nodeRights are the mutants of rights, limits and other surfaces.
var nodeRights = []Mutant{
}
