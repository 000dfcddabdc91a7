package changesdb

import "runtime/debug"

// giveBackFrom is how many objects make it worth to give memory back after a load. With
// fewer there is little to give.
const giveBackFrom = 100_000

// GiveBack gives the system the memory that a start has used beside the content: by bbolt's
// search for free pages, and for decoded rows and raft's entries. That is almost as much as
// the content itself, and would stay with the process. It takes half a second with a
// million objects.
func (c *Content) GiveBack() {
	if c.State.Len() >= giveBackFrom {
		debug.FreeOSMemory()
	}
}
