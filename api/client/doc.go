// Package client talks to Rutter's servers over HTTP: objects, whole changes,
// the log, and the connection that a feed runs on.
//
// It knows several servers and goes to the next when one does not answer;
// every server takes every request. A write carries an id of its own, so it is
// repeated without harm until an answer comes. What the frames of a feed mean is
// left to package log/feed.
//
// A Client is safe for concurrent use. It starts no goroutine that outlives a
// call.
package client
