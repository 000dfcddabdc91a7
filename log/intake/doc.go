// Package intake is the write stream between a client and a server: the frames
// of an upgraded connection on which many changes are under way at once.
//
// It owns the bytes (format.go has the table; golden files hold one frame of each type)
// and the bounds on them. Package api takes changes; package api/client sends them, and
// sends them again.
//
// A stream:
//
//	        ← welcome          which version, and whether this server leads
//	change →, change →, …      at any time, however many are unanswered
//	        ← result           of a change, by its id; in any order
//	        ← failed           the change was not decided: a code says whether it may have been written
//	        ← welcome          again, when the server ceases to lead
//	ping →  ← pong             so that both know that the other is there
//	        ← drain            what was sent is answered, nothing more is read: go to another server
//
// If the connection ends before a change is answered, the change may have been written.
// The client sends it again, with the same id, on the next connection.
//
// Concurrency: a Reader belongs to one goroutine. The Append functions are pure.
package intake
