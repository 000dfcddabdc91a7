// Package supportcmd is `rutter support bundle`: one file with what all servers, chosen
// compute nodes, or the daemons of this machine say of themselves.
//
// It owns which parts are asked of whom, the bounds of the whole, and the form of the file
// with its manifest. It leaves to package api/support what a part holds and what is secret;
// it removes secrets once more, because a server or an agent may be of another version.
package supportcmd
