// Package servercmd has the command rutter server: it reads its flags, makes a server
// of package serve, and restricts the process to what the server needs.
package servercmd
