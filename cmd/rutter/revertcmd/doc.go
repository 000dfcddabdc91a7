// Package revertcmd is `rutter log revert`: it chooses entries of the log, shows what takes
// them back and what that would do, and writes it if its user agrees.
//
// What takes entries back is computed by package undo, and what that would do by package
// foresee; this package reads the log and the state, asks, and writes.
package revertcmd
