// Package objects has the commands that every kind of object has (list, get,
// create, update, delete), and those of the kinds that have no others. Kinds with
// more commands, such as compute nodes, add theirs to these.
package objects
