// Package vmhost has what commands share about the VMs of this compute node: the flags
// that name their folders, their runner and their vminfod, a client of a vminfod, and
// the check of which fields an update may change.
package vmhost
