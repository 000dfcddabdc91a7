// Package lookupcmd has the commands that ask who is where: rutter lookup (who has
// an address) and rutter trace (why one VM can, or cannot, reach another).
package lookupcmd
