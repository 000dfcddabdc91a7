// Package guesttest has root folders for the VMs of tests: a folder with one program
// that needs no libraries (testdata/guest), built when it is first asked for.
package guesttest
