// Package storeapi shows the store of package raftstore as package api and the
// surfaces beside it declare what they need of one: errors, status, backups,
// retention, the past, and who a change's author is.
package storeapi
