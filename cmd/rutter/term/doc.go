// Package term is what the commands of the program share at the terminal: the
// flags that name servers and formats, mistakes in usage, and how one value is
// printed. The commands themselves stand in package main and in the packages
// beside this one, such as logcmd.
//
// Nothing here is kept between calls, so all of it may be called concurrently.
package term
