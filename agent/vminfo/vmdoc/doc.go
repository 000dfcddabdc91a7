// Package vmdoc has the JSON of a VM as a value: parsed and printed as JavaScript
// does, compared with Diff (the vectors of the original vminfod), and changed by
// vmadm's verbs (Updated). It is pure: it knows no store and no system. A Value is
// not changed once made, and may be shared between goroutines.
package vmdoc
