// Package storeapi adapts the store of package raftstore to the interfaces that package
// api and the surfaces declare: errors, status, backups, retention, the past, and the
// author of a change.
package storeapi
