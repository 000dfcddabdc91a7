// Package provision makes the log's part of new VMs and of new NICs of VMs, and frees it
// when the task that was to make them on the compute node has failed.
//
// It owns which operations these are, the form in which a request names networks, and the
// form of the task by which they are found again: a task that has networks in its params
// was written in one change with its NICs. So nothing else remembers what must be freed,
// and whichever server leads frees it, also after the one that made it has died. Deciding
// stays with the log; answers and their codes are those of the surfaces, CNAPI and VMAPI.
//
// Concurrency: its functions have no state.
package provision
