// Package servercmd has the command rutter server: it reads its flags, makes a server
// of package serve, and takes from the process what that does not need.
package servercmd
