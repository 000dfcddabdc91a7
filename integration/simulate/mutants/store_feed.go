package mutants

// storeFeed are the mutants of the feed and of the fold.
var storeFeed = []Mutant{}
