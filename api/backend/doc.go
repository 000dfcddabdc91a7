// Package backend is what stands behind the routes of the API: the log and its state.
//
// It owns the small interfaces through which servers reach them (Store, Past), how a
// read waits until it is fresh enough and what it says of that (Reader), how a change is
// written and what became of it (Writer), cursors that come from clients, and the answers
// to the errors of all that. Agreement and storage are left to whoever implements Store,
// paths and forms of objects to package api.
//
// A Reader and a Writer start nothing and may be used concurrently.
package backend
