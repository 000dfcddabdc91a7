// Package mutants lists bugs that are planted into the product, one place at a time, and what
// must notice each. Package faults lists which tests hold a rule of safety; this package shows
// that they do: a mutant breaks the rule, and the tests that it names must fail.
//
// The tree is never changed. The compiler is given another text of one file (go build
// -overlay), so that mutants can be tried beside other work. `make mutants` tries all of them:
// each is built, the tests that it names are run, and a mutant that one of them does not notice
// is an error. A mutant that does not build is an error too, and so is a test that fails without
// a mutant. `make test` only checks that each text that is replaced is there exactly once, and
// that docs/mutants.md shows this list.
//
// The tables of mutants are data: store.go and the files beside it whose names begin with
// "store" for the servers, node.go and the files whose names begin with "node" for agents,
// rights and limits. Package simulate runs histories with mutants (Hunt), and keeps
// after how many histories each was found.
//
// Concurrency: a Runner is used by one goroutine.
package mutants
