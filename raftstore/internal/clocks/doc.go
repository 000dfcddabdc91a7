// Package clocks takes what servers read of each other's clocks, agrees on a time, and
// stamps changes by it on the leader.
//
// Clocks holds the newest readings, and makes an Agreement of them; how a reading gets
// from one server to another is the store's. A Stamper goes by an Agreement, and by the
// wall clock as far as that is near it. The methods of both may be called by any
// goroutine; an Agreement is not altered once it is made.
package clocks
