// Package manpages has the command rutter manpages, which packages are built with: it
// writes a page of manual section 1 for the program and for each of its commands. The
// pages are made from the commands themselves: their usage, flags, defaults, variables,
// examples and files.
package manpages
