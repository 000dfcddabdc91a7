// Package waitcmd has the command rutter wait: until every compute node that is
// concerned has a change in its kernel.
package waitcmd
