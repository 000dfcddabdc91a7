// Package backend is what the routes of the API work on: the log and its state.
//
// It owns the small interfaces to them (Store, Past), how a read waits until it is
// fresh enough and how the answer reports that (Reader), how a change is written and
// its result reported (Writer), cursors that come from clients, and the answers to the
// errors of all that. Agreement and storage are left to the implementation of Store,
// paths and forms of objects to package api.
//
// A Reader and a Writer start nothing and may be used concurrently.
package backend
