// Package snoopcmd has the commands that print the messages of a Triton protocol:
// rutter changefeed snoop and rutter svp snoop.
package snoopcmd
