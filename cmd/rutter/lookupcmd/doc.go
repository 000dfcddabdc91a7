// Package lookupcmd has the commands rutter lookup (which NIC has an address, and
// where) and rutter trace (why one VM can, or cannot, reach another).
package lookupcmd
