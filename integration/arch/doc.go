// Package arch holds the rules of the house as tests: which packages may import which
// (architecture section 3), what the pure packages may not use, how long files and
// functions may be, and others. Each rule has a reason, and is itself tested on small
// good and bad examples, so that a rule that finds nothing cannot pass.
//
// It owns no code of the program, only its tests: rules_test.go lists the
// rules, table_test.go has the import table and the listed exceptions,
// tree_test.go reads the module, examples_test.go has the examples. The files
// are parsed, not type-checked, so a rule sees names and not types. Everything
// runs in one goroutine.
package arch
