// Package zone chooses the server that a compute node follows: a ready one of the node's
// own zone if there is one, else any other.
//
// It owns what the node knows of each server's zone and readiness, the
// order in which servers are tried, and when the node goes back to its own zone. The
// connection belongs to the caller.
//
// Without a zone nothing is asked, and the order is the node's own (Config.Node), so that
// nodes with the same list share its servers: the server that worked last first, then the
// next. The node stays at a server that feeds it, wherever in the order that is.
//
// With a zone, a server of it that was ready when it was asked last comes first, then
// servers of an unknown zone, then those of others, and then in the same order those that
// were not ready or failed last. Among equals the order is the node's own, from the present server
// on. A server that failed comes after those that failed less often since a server fed the
// node.
//
// A node that follows a server elsewhere asks the servers of its zone, and those whose zone
// it does not know, at random times that are Config.Every apart on average. Once one of
// them was ready at each question for Config.Settle, the node waits a random part of
// Config.Spread, asks once more, and goes back. So the nodes of a zone do not all come in
// the same second, and a server that restarts again and again does not draw them.
//
// Concurrency: all methods may be called from any goroutine. Next, Failed and Moved are about
// one connection after the other, and Away and Refused about the one that the node has.
package zone
