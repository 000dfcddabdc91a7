// Package verdicts finds the entries of a log after which the verdict of a trace between
// two VMs changes: all of them, by going through the entries, or one, by probes. It
// leaves reading the log to its caller, and printing.
package verdicts
