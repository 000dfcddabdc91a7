// Package rig starts what the tests of the whole program need: the binary under test,
// clusters of servers, `rutter dev`, and any other process. All end with their test, and
// what they said last is shown if it fails.
//
//	var rutter string // the binary under test
//
//	func TestMain(m *testing.M) { os.Exit(rig.Run(m, &rutter)) }
package rig
