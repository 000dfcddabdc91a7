// Package benchcmd has the command rutter bench: it reads the flags, starts or finds a
// cluster, and prints what package bench measures.
package benchcmd
