// Package vmhost has what commands share about the VMs of this compute node: the
// flags that name their folders, the runner and the vminfod of those, the client of
// a vminfod, and the rule of which fields an update may touch.
package vmhost
