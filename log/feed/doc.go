// Package feed is the stream between a server and a compute node: its frames,
// their reader and writer, and the client's side of following it.
//
// It owns the bytes (format.go has the table; golden files hold one frame of each
// type), the bounds on them, and the order that a stream must keep, which Conn.Follow
// checks. Package api decides which entries a compute node gets, package agent what it
// does with them.
//
// A stream, as a subscriber sees it:
//
//	hello →                         its cursor and the scopes that it holds
//	        ← welcome               which log this is, and where its head is
//	       [← reset]                the cursor cannot be used: everything follows anew
//	        ← entry …               from the cursor to the head h, of scopes held and still wanted
//	        ← scope begin, object …, scope end   each new scope as of h
//	        ← scope dropped …       each scope that is no longer wanted
//	        ← bookmark h            everything up to h was sent
//	        ← entry …, bookmark     live; a scope that an entry adds follows that entry
//	        ← tell N                a client waits until the CN has programmed N: send watermarks at once
//	watermark →, ping → ← pong      at any time
//	        ← request               the server asks the CN; response → in any order, at any time
//	ring →, inventory →             the state or the set of its VMs has changed; at any time
//	        ← drain                 go to another server
//
// Concurrency: a Reader belongs to one goroutine. Append and Decode are pure.
// Conn.Watermark, Again and Send may be called from any goroutine while Follow runs.
package feed
