// Package term has what the commands of the program share at the terminal: the flags
// that name servers, usage errors, passphrases, progress and exit codes. The commands
// themselves are in package main and in the packages beside this one, such as logcmd.
//
// Nothing here is kept between calls, so all of it may be called concurrently.
package term
